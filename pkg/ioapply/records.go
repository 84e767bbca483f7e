// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package ioapply

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// Records has what was applied to the cgroups of a node. A classes.Memory keeps it over restarts of the plugin. Before
// a change, Begin saves the values from before and after the change. If the plugin is killed during the change, the
// next process thus knows what may have been written. The values that a runtime stores for a container are not saved,
// because the runtime returns them to a plugin that has restarted.
type Records struct {
	log *slog.Logger
	now func() time.Time
	// saving serializes writes of the memory. It is locked before `mu`.
	saving sync.Mutex

	// mu guards the fields below. No caller holds it during I/O.
	mu       sync.Mutex
	byCgroup map[string]record
	// unsaved has the keys of the records that have changed since they were saved.
	unsaved map[string]bool
	memory  classes.Memory
	// isLost is true until the records of an earlier process were loaded. If it is true when Look first looks at a
	// cgroup, a live value counts as applied if a class has the same value.
	isLost bool
	// isMarked is true if the memory has the marker.
	isMarked bool
}

type record struct {
	Applied
	// `stored` has the values that the runtime stores for a container. The runtime writes them again when another
	// setting changes.
	stored iocgroup.Values
	added  time.Time
	// `seen` is true after the values of the cgroup were read.
	seen bool
}

// These are keys of the memory. `marker` says that records are saved in it. `prefix`, followed by a cgroup, is the key
// of a record.
const (
	marker = "cgroups"
	prefix = "cgroup "
)

// The record of a cgroup that was not seen yet is kept for keepTime. The creation of a container takes less time.
const keepTime = 10 * time.Minute

// NewRecords returns the records of a node. They are not saved until Remember is called.
func NewRecords(log *slog.Logger) *Records {
	return &Records{log: log, now: time.Now, byCgroup: map[string]record{}, unsaved: map[string]bool{}, isLost: true}
}

// Remember loads the records of an earlier process, and saves changes from now on. Only the first call has an effect.
func (r *Records) Remember(memory classes.Memory) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memory != nil {
		return nil
	}
	r.memory = memory

	var errs []error
	for key, data := range memory.Load() {
		cgroup, isRecord := strings.CutPrefix(key, prefix)
		switch {
		case key == marker:
			r.isLost, r.isMarked = false, true
		case isRecord:
			var one Applied
			errs = append(errs, json.Unmarshal(data, &one))
			r.byCgroup[cgroup] = record{Applied: one, added: r.now()}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("read what was applied to cgroups: %w", err)
	}
	return nil
}

// keyOf returns the key of the record of a target's cgroup.
func keyOf(target classes.Holder) string { return cmp.Or(target.CgroupsPath, target.ID) }

// Get returns what was applied to the cgroup of a target, and what the runtime may still write to it.
func (r *Records) Get(target classes.Holder) Applied {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.byCgroup[keyOf(target)]
	applied, _ := of.with(of.stored)
	return applied
}

// Known has the values that classes set. Look needs them for a cgroup whose record was lost.
type Known struct {
	// Classes has the values of the classes of containers and pods. Limits has the limits of volume classes, which can
	// be on any disk.
	Classes map[string]iocgroup.Values
	Limits  []iocgroup.Value
}

// Look returns what was applied to the cgroup of a target, like Get. If the records of an earlier process are lost, a
// live value counts as applied in the first Look if a class has the same value.
func (r *Records) Look(target classes.Holder, live iocgroup.Values, known func() Known) Applied {
	if !r.IsNew(target) {
		return r.Get(target)
	}
	adopted := known().adopt(live)
	r.mu.Lock()
	of := r.recordOf(target)
	both, _ := of.with(adopted.Settings())
	both.Class, of.seen = cmp.Or(of.Class, adopted.Class), true
	if both.Disks == nil && len(both.Values) == 0 {
		both.Disks = map[string][]iocgroup.Device{} // no volume has limits
	}
	r.put(target, of, both)
	r.mu.Unlock()
	return r.Get(target)
}

// IsNew reports whether the records of an earlier process are lost, and Look has not looked at the target's cgroup yet. The
// first Look needs all live values of the cgroup.
func (r *Records) IsNew(target classes.Holder) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isLost && !r.byCgroup[keyOf(target)].seen
}

// IsChanging reports whether a change of the target's cgroup to a class has begun, and was not confirmed yet.
func (r *Records) IsChanging(target classes.Holder, class string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.byCgroup[keyOf(target)]
	if of.Class != class {
		return false
	}
	for _, values := range of.Values {
		if len(values) > 1 {
			return true
		}
	}
	return false
}

func (k Known) adopt(live iocgroup.Values) Applied {
	found := Applied{Values: map[iocgroup.Setting][]iocgroup.Value{}}
	candidates := map[iocgroup.Setting][]iocgroup.Value{}
	for name, values := range k.Classes {
		for s, value := range values {
			candidates[s] = append(candidates[s], value)
		}
		if len(values) > 0 && len(values.Remaining(live)) == 0 && (found.Class == "" || name < found.Class) {
			found.Class = name
		}
	}

	for s, value := range live {
		of := Applied{Values: candidates}
		if s.IsLimit() {
			of.Values = map[iocgroup.Setting][]iocgroup.Value{s: slices.Concat(candidates[s], k.Limits)}
		}
		if of.has(s, value) {
			found.set(s, value.Except(of.foreign(s, value)))
		}
	}
	return found
}

// Store records the values that the runtime stores for a container, in those files for which `in` returns true. It does no I/O.
func (r *Records) Store(target classes.Holder, values iocgroup.Values, in func(iocgroup.Setting) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.recordOf(target)
	of.stored = of.stored.Only(func(s iocgroup.Setting) bool { return !in(s) }).Merge(values)
	of.version++
	if _, known := r.byCgroup[keyOf(target)]; known || len(values) > 0 {
		r.byCgroup[keyOf(target)] = of
	}
}

// recordOf returns the record of a target, or a new one. The caller holds mu.
func (r *Records) recordOf(target classes.Holder) record {
	of, known := r.byCgroup[keyOf(target)]
	if !known {
		of.added = r.now()
	}
	if !known && !r.isLost {
		of.Disks = map[string][]iocgroup.Device{}
	}
	return of
}

// Locate records the disks of a volume that is about to get its limits. It removes the disks of volumes for which
// `held` returns false. It returns what was applied, like Get.
func (r *Records) Locate(target classes.Holder, disks []iocgroup.Disk, held func(volumeID string) bool) Applied {
	devices := make([]iocgroup.Device, len(disks))
	for i, disk := range disks {
		devices[i] = disk.Device
	}
	r.mu.Lock()
	of := r.recordOf(target)
	changed := of.Disks != nil && !slices.Equal(of.Disks[target.ID], devices)
	if changed {
		of.Disks = maps.Clone(of.Disks)
		maps.DeleteFunc(of.Disks, func(id string, _ []iocgroup.Device) bool { return !held(id) })
		of.Disks[target.ID] = devices
		of.version++
		r.byCgroup[keyOf(target)], r.unsaved[keyOf(target)] = of, true
	}
	r.mu.Unlock()
	if changed && len(of.Values) > 0 { // else Begin saves it
		r.save(false)
	}
	return r.Get(target)
}

// Begin records and saves that a part of a change is about to be written. `class` is the class of a container or pod,
// or empty. An error of the save is only logged, so that containers start even if the disk is full.
func (r *Records) Begin(target classes.Holder, class string, change *Change, rest iocgroup.Values) {
	change.Applied.version = r.Expect(target, class, change.Applied.Settings().Only(rest.Has))
}

// Expect records and saves that a cgroup may get values. It returns the version of the record.
func (r *Records) Expect(target classes.Holder, class string, more iocgroup.Values) (version int) {
	r.mu.Lock()
	version, changed := r.expect(target, class, more)
	r.mu.Unlock()
	if changed {
		r.save(false)
	}
	return version
}

// ExpectAll works like Expect for all targets that already have a class of the resource, with one save instead of one
// in each Begin.
func (r *Records) ExpectAll(targets []classes.Holding, resource string, valuesOf func(class string) (iocgroup.Values, error)) {
	changed := false
	r.mu.Lock()
	for _, target := range targets {
		class := target.Class(resource)
		values, err := valuesOf(class)
		if err == nil && class != classes.SystemDefault && class == r.byCgroup[keyOf(target.Holder)].Class {
			_, one := r.expect(target.Holder, class, values)
			changed = changed || one
		}
	}
	r.mu.Unlock()
	if changed {
		r.save(false)
	}
}

// expect adds values to the record of a cgroup. The caller holds mu.
func (r *Records) expect(target classes.Holder, class string, more iocgroup.Values) (version int, changed bool) {
	of := r.recordOf(target)
	after, changed := of.with(more)
	after.Class = cmp.Or(class, of.Class)
	changed = changed || after.Class != of.Class && len(after.Values) > 0
	return r.put(target, of, after), changed
}

// Confirm records the applied values of a cgroup after a change or an observation, unless the record has changed since
// `applied` was read. The next save saves the record.
func (r *Records) Confirm(target classes.Holder, applied Applied) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.recordOf(target)
	if applied.version != of.version {
		return
	}
	of.seen = true
	for s, value := range of.stored {
		if !of.Has(s) && slices.Equal(applied.Values[s], []iocgroup.Value{value}) {
			delete(applied.Values, s) // the runtime returns it after a restart
		}
	}
	r.put(target, of, applied)
}

// put replaces a record, and returns its version. The caller holds mu.
func (r *Records) put(target classes.Holder, of record, applied Applied) (version int) {
	key := keyOf(target)
	if _, known := r.byCgroup[key]; !known && !r.isLost && len(applied.Values)+len(of.stored) == 0 {
		return of.version
	}
	if len(applied.Values) > 0 && applied.Class != of.Class || !maps.EqualFunc(of.Values, applied.Values, slices.Equal) {
		r.unsaved[key] = true
	}
	applied.version = of.version + 1
	of.Applied = applied
	r.byCgroup[key] = of
	return applied.version
}

// Save saves the records that have changed. It must be called periodically.
func (r *Records) Save() { r.save(true) }

func (r *Records) save(mayMark bool) {
	r.saving.Lock()
	defer r.saving.Unlock()

	r.mu.Lock()
	memory, saved, changed := r.memory, r.unsaved, map[string][]byte{}
	mark := mayMark && !r.isMarked && len(r.byCgroup) > 0
	if memory == nil || len(saved) == 0 && !mark {
		r.mu.Unlock()
		return
	}
	var errs []error
	if mark {
		changed[marker], r.isMarked = []byte("{}"), true
	}
	for key := range r.unsaved {
		changed[prefix+key] = nil
		if of := r.byCgroup[key]; len(of.Values) > 0 {
			data, err := json.Marshal(of.Applied)
			changed[prefix+key], errs = data, append(errs, err)
		}
	}
	r.unsaved = map[string]bool{}
	r.mu.Unlock()

	if err := errors.Join(append(errs, memory.Save(changed))...); err != nil {
		r.log.Warn("cannot save what was applied to cgroups; after a restart, limits of former classes may stay", "error", err)
		r.mu.Lock()
		maps.Copy(r.unsaved, saved)
		r.isMarked = r.isMarked && !mark
		r.mu.Unlock()
	}
}

// Prune removes the records of cgroups that have been removed.
func (r *Records) Prune(exists func(key string) bool) {
	r.mu.Lock()
	old := maps.Clone(r.byCgroup)
	r.mu.Unlock()
	maps.DeleteFunc(old, func(key string, of record) bool {
		return !of.seen && r.now().Sub(of.added) < keepTime || exists(key)
	})

	r.mu.Lock()
	defer r.mu.Unlock()
	for key, of := range old {
		if r.byCgroup[key].version != of.version {
			continue // the cgroup was created again meanwhile
		}
		delete(r.byCgroup, key)
		if len(of.Values) > 0 {
			r.unsaved[key] = true
		}
	}
}

// HasDevice reports whether values were applied for a device.
func (r *Records) HasDevice(dev iocgroup.Device) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range r.byCgroup {
		for s := range of.Settings().Merge(of.stored) {
			if s.Device == dev {
				return true
			}
		}
	}
	return false
}
