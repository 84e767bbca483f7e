// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"maps"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Resizing has the state of a container after a change by the runtime.
type Resizing struct {
	Spec classes.Spec
	// `Since` is the time of the first such change since the reconciler last compared the container with its classes.
	// It is zero if there was none. Later changes do not delay the next comparison, because the kubelet requests a
	// refused change again and again.
	Since time.Time
}

// resizeTime is the longest time that a runtime needs to write the limits of a container after the hook.
const resizeTime = 10 * time.Second

// Compare returns a holder that the reconciler is about to compare with its classes. `ok` is false if the holder is
// unknown, or if the runtime may be writing limits of the container: the kernel may already have values that depend on
// these limits, and `h` has the old ones.
func (s *Store) Compare(id string) (h Holding, ok bool) {
	defer s.lock()()
	n := &s.node

	h, known := n.table.Get(id)
	if !known || h.Resizing == nil {
		return h, known
	}
	if n.now().Sub(h.Resizing.Since) < resizeTime {
		return h, false
	}
	n.update(id, func(h *Holding) { h.Resizing = &Resizing{Spec: h.Resizing.Spec} })
	return h, true
}

// Quiet works like Refresh and Compare for a holder that runs, and for which nothing is to be done but to compare it. `ok` is false for others.
func (s *Store) Quiet(id string) (h Holding, ok bool) {
	defer s.lock()()
	n := &s.node

	if h, _ = n.table.Get(id); h.Phase != Running || h.Resizing != nil || h.Stored == StoredStale {
		return h, false
	}
	n.followDefaults(id)
	return n.table.Get(id)
}

// Resize records that the runtime is about to change a container, and returns the cgroup v2 values of the container's
// classes that the runtime must set, too. These are the values that the runtime's change would overwrite, and those
// that depend on a limit that changes. If the runtime has stored values of another class, Resize returns all values of
// the container's class, because the runtime may write what it has stored. `requested` has what the kubelet requests: new
// limits, and settings, which become originals of the container even if the class has the same value. containerd and CRI-O
// pass on the kubelet's request alone. `stored` has the settings that the runtime has stored.
//
// Resize also returns the container with its new limits and originals. The store has these only after the call of
// Resized, because the runtime may refuse the change without a report.
func (s *Store) Resize(id string, requested classes.Spec, stored classes.Adjustment) (classes.Adjustment, classes.Holder) {
	defer s.lock()()
	n := &s.node

	before, known := n.table.Get(id)
	if !known {
		return nil, classes.Holder{}
	}
	after := before
	after.Spec = resized(before.Spec, requested)

	var again classes.Adjustment
	for _, a := range before.Assignments {
		backend, there := n.live.Resources[a.Resource]
		if !there { // a former process has assigned a class of a resource that this one never had
			continue
		}
		isStale := before.isStale(a.Resource, backend.Backend, stored.Unified()) // before Adjust, which also replaces the stored values that are found here
		was, err := backend.Adjust(before.Holder, a.Class, a.Class)
		now, errNow := backend.Adjust(after.Holder, a.Class, a.Class)
		if err != nil || errNow != nil {
			continue // the class was removed; the runtime's change is not refused for that, and the reconciler enforces the class again
		}
		if isStale || before.differs(a, backend.Backend, was, stored) {
			again = again.Merge(instead(now, a.Class, before.Spec.Originals, requested.Settings))
			continue
		}
		if a.Class == classes.SystemDefault {
			continue
		}
		again = again.Merge(overwritten(was, now, requested))
	}

	after.Spec.Originals = after.Spec.Originals.Merge(requested.Settings)
	since := n.now()
	if pending := before.Resizing; pending != nil && !pending.Since.IsZero() {
		since = pending.Since
	}
	n.update(id, func(h *Holding) { h.Resizing = &Resizing{Spec: after.Spec, Since: since} })
	return again, after.Holder
}

// Resized records that the runtime has made the change that Resize recorded as pending.
func (h *Holding) Resized() {
	if h.Resizing != nil {
		h.Spec, h.Resizing = h.Resizing.Spec, nil
	}
}

// isStale reports whether a backend recognizes that the runtime has stored values for a container that differ from those of its class.
func (h Holding) isStale(resource string, backend classes.Backend, stored map[string]string) bool {
	checker, ok := backend.(classes.StoredValueChecker)
	return ok && h.MayStore(resource) && checker.IsStale(h.Holder, h.Class(resource), stored)
}

// differs is isStale for a backend whose values are equal only if their texts are equal. `was` has the values of the
// container's class.
func (h Holding) differs(a classes.Assignment, backend classes.Backend, was, stored classes.Adjustment) bool {
	if _, ok := backend.(classes.StoredValueChecker); ok || !h.MayStore(a.Resource) {
		return false
	}
	for setting, value := range was {
		if has, stores := stored[setting]; setting.Name == classes.SettingUnified && stores && has != value {
			return true
		}
	}
	return false
}

// instead returns the cgroup v2 values `now` of a class, which replace those that the runtime has stored. A container
// without a class gets its originals, or the values that the kubelet requests with this change.
func instead(now classes.Adjustment, class string, originals, requested classes.Adjustment) classes.Adjustment {
	if class == classes.SystemDefault {
		now = now.Restored(originals)
	}
	values := maps.Clone(now)
	maps.DeleteFunc(values, func(setting classes.Setting, _ string) bool {
		_, requests := requested[setting]
		return setting.Name != classes.SettingUnified || class == classes.SystemDefault && requests
	})
	return values
}

// resized returns the description of a container after a change. It keeps limits that are not in `requested`.
func resized(spec, requested classes.Spec) classes.Spec {
	if requested.MemoryLimit != 0 {
		spec.MemoryLimit = requested.MemoryLimit
	}
	if requested.CPUQuota != 0 || requested.CPUPeriod != 0 {
		spec.CPUQuota, spec.CPUPeriod = requested.CPUQuota, requested.CPUPeriod
	}
	if requested.CPUShares != 0 {
		spec.CPUShares = requested.CPUShares
	}
	return spec
}

// overwritten returns those cgroup v2 values in `now` that the runtime would overwrite with its change, and those that
// differ from `was`. `was` has the values of the class before the limits of the container change, and `now` has those
// after the change. With the memory limit, CRI-O also writes the swap limit (toOCIResources in
// server/container_update_resources.go).
func overwritten(was, now classes.Adjustment, requested classes.Spec) classes.Adjustment {
	values := maps.Clone(now)
	maps.DeleteFunc(values, func(setting classes.Setting, value string) bool {
		wanted, overwrites := requested.Settings[setting]
		overwrites = overwrites && wanted != value || requested.MemoryLimit != 0 && setting == classes.Unified("memory.swap.max")
		return setting.Name != classes.SettingUnified || !overwrites && was[setting] == value
	})
	return values
}

// checkMutable returns an error if a class sets something that NRI cannot change in a running container. The caller holds the lock.
func checkMutable(backend classes.Backend, h classes.Holder, resource, from, to string) error {
	of := func(class string) classes.Adjustment {
		if class == classes.SystemDefault {
			return nil
		}
		adjustment, err := backend.Adjust(h, classes.SystemDefault, class)
		if err != nil {
			return nil // the change of class itself reports the error
		}
		return adjustment
	}

	before, after := of(from), of(to)
	// In the system default, these settings have the values that the kubelet requested.
	switch classes.SystemDefault {
	case from:
		before = originalsOf(h, after)
	case to:
		after = originalsOf(h, before)
	}
	if setting, found := classes.Immutable(before, after); found {
		return fmt.Errorf("%s: %w: class %q has another %s than class %q, and a runtime sets it only when it creates a container; "+
			"create the pod again with the new class", resource, ErrImmutable, to, setting, from)
	}
	return nil
}

// originalsOf returns the original values of the settings of an adjustment. It leaves out settings that had no value.
func originalsOf(h classes.Holder, adjustment classes.Adjustment) classes.Adjustment {
	originals := maps.Clone(h.Spec.Originals)
	maps.DeleteFunc(originals, func(setting classes.Setting, _ string) bool {
		_, sets := adjustment[setting]
		return !sets
	})
	return originals
}
