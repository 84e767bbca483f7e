// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strings"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// enforcePod sets cpu.idle of a pod's cgroup. When the cgroup becomes idle, the kernel forgets the weight that the kubelet
// has set (sched_group_set_idle of kernel/sched/fair.c). So enforcePod first records the weight, and restores it when the
// cgroup is no longer idle.
func (b *Backend) enforcePod(target classes.Holder, from, to string) error {
	wanted, sets, err := b.idle(target, from, to)
	if err != nil || !sets {
		return err
	}
	has, weight, err := b.idleNow(target)
	if err != nil {
		return err
	}

	record, _ := b.pods.get(target)
	if has != wanted {
		if to != classes.SystemDefault {
			record = record.changed(has, weight)
			b.pods.set(target, &record)
		}
		files := map[string]string{idleFile: wanted}
		if wanted == "0" && record.Weight != "" {
			files[weightFile] = record.Weight
		}
		if err := b.write(target, files); err != nil {
			return err
		}
	}
	if to == classes.SystemDefault {
		b.pods.set(target, nil)
	}
	return nil
}

// idle returns the cpu.idle of a pod that moves between two classes. A pod that leaves its class gets back what it had before. `sets` is
// false if it had no class.
func (b *Backend) idle(target classes.Holder, from, to string) (wanted string, sets bool, err error) {
	s := b.live.Load()
	c, err := s.class(to)
	if err != nil {
		return "", false, err
	}
	if to != classes.SystemDefault {
		return idleOf(c), true, nil
	}

	record, known := b.pods.get(target)
	left, _ := s.class(from)
	if !known && idleOf(left) == "1" {
		b.log.Warn("the CPU weight of a pod is lost; the pod gets the default weight until the kubelet sets its own", "pod", target.String())
		return "0", true, nil
	}
	return record.Idle, known, nil
}

// idleOf returns the cpu.idle of a class, or "" if it sets none.
func idleOf(c class) string {
	text, _ := c.value("cpu.idle").(fixed)
	return string(text)
}

// idleNow reads a pod's cgroup.
func (b *Backend) idleNow(target classes.Holder) (idle, weight string, err error) {
	dir, err := b.runningDir(target)
	if err != nil {
		return "", "", err
	}
	idle, err = b.opts.read(path.Join(dir, idleFile))
	if err != nil {
		return "", "", err
	}
	weight, err = b.opts.read(path.Join(dir, weightFile))
	return idle, weight, err
}

// observePod returns the class `want` if the pod's cgroup has its value. A pod that has left its class, and is still idle, has no known
// class.
func (b *Backend) observePod(target classes.Holder, want string) (classes.Observation, error) {
	wanted, sets, err := b.idle(target, want, want)
	if err != nil {
		return classes.Observation{}, nil //nolint:nilerr // a class that no class file has any more is unknown
	}
	seen := classes.Observation{Class: want, Known: true}
	if !sets {
		return seen, nil
	}
	has, _, err := b.idleNow(target)
	if err != nil || has == wanted {
		return seen, err
	}
	return classes.Observation{Left: want == classes.SystemDefault}, nil
}

// podRecord has the values of a pod's cgroup before its class.
type podRecord struct {
	// Idle is the content of cpu.idle. Weight is the last content that cpu.weight had while the pod was not idle. It is
	// empty if that is unknown.
	Idle   string `json:"idle"`
	Weight string `json:"weight,omitempty"`
}

// changed returns the record with the values from before a change. It does not record the weight of an idle cgroup,
// because that is not the weight which the kubelet has set.
func (r podRecord) changed(idle, weight string) podRecord {
	if r.Idle == "" {
		r.Idle = idle
	}
	if idle == "0" {
		r.Weight = weight
	}
	return r
}

// podRecords has the records of pods with a class, by their cgroups. A classes.Memory keeps them over restarts of the
// plugin.
type podRecords struct {
	log *slog.Logger
	// mu guards the fields below.
	mu       sync.Mutex
	byCgroup map[string]podRecord
	memory   classes.Memory
}

// podKey, followed by a cgroup, is the key of a record in the memory.
const podKey = "linux pod "

func newPodRecords(log *slog.Logger) *podRecords {
	return &podRecords{log: log, byCgroup: map[string]podRecord{}}
}

var _ classes.Rememberer = (*Backend)(nil)

// Remember implements classes.Rememberer.
func (b *Backend) Remember(memory classes.Memory) error { return b.pods.remember(memory) }

// remember loads the records of an earlier process, and saves changes from now on. Only the first call has an effect.
func (p *podRecords) remember(memory classes.Memory) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.memory != nil {
		return nil
	}
	p.memory = memory

	var errs []error
	for key, data := range memory.Load() {
		if name, is := strings.CutPrefix(key, podKey); is {
			var record podRecord
			errs = append(errs, json.Unmarshal(data, &record))
			p.byCgroup[name] = record
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("read what pods had before their classes: %w", err)
	}
	return nil
}

func (p *podRecords) get(pod classes.Holder) (record podRecord, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	record, known = p.byCgroup[pod.CgroupsPath]
	return record, known
}

// set replaces the record of a pod, and saves it. nil removes it. An error of the save is logged: a full disk must not keep pods from
// starting.
func (p *podRecords) set(pod classes.Holder, record *podRecord) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var data []byte
	var err error
	if record == nil {
		if _, known := p.byCgroup[pod.CgroupsPath]; !known {
			return
		}
		delete(p.byCgroup, pod.CgroupsPath)
	} else {
		p.byCgroup[pod.CgroupsPath] = *record
		data, err = json.Marshal(record)
	}
	if p.memory == nil {
		return
	}
	if err := errors.Join(err, p.memory.Save(map[string][]byte{podKey + pod.CgroupsPath: data})); err != nil {
		p.log.Warn("cannot save the CPU weight of a pod; after a restart, a pod that leaves its class gets the default weight", "error", err)
	}
}

// prune removes the records of pods whose cgroups have been removed.
func (p *podRecords) prune(exists func(cgroupsPath string) bool) {
	p.mu.Lock()
	all := sortedKeys(p.byCgroup)
	p.mu.Unlock()
	for _, cgroupsPath := range all {
		if !exists(cgroupsPath) {
			p.set(classes.Holder{CgroupsPath: cgroupsPath}, nil)
		}
	}
}

// hasGroup reports whether a pod has a cgroup with the file cpu.idle. If that is unknown, it returns true.
func (b *Backend) hasGroup(cgroupsPath string) bool {
	group, err := cgroup.Path(cgroupsPath)
	if err != nil {
		return false
	}
	_, err = b.opts.read(path.Join(root, group, idleFile))
	return !errors.Is(err, fs.ErrNotExist)
}
