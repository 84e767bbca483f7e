// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"maps"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// snapshot is a configuration as it is live. It is never changed: hooks read it while another one is made.
type snapshot struct {
	// config is what was applied; nil before any was.
	config  *Config
	machine machine
	classes map[string]liveClass
	status  classes.BackendStatus
	// recalled are values of former configurations, of disks and weights that no class had when they were found.
	recalled values
	// named are the values of all classes, and those that are recalled: what a container that has run for a while may have. A process that
	// was killed in the middle of a change can have left some of a class that nobody remembers.
	named values
}

// liveClass is a class with all that leaving it has to clear.
type liveClass struct {
	values values
	// configured are the values of a class that is not offered any more, those of devices that are gone included.
	configured values
	// touched are the values of the class and of its predecessors of the same name, which running containers may still have.
	touched values
	// offered is false for a class that is gone from the configuration and kept for those who have it.
	offered bool
	// creation is what a new container in this class needs.
	creation classes.Adjustment
}

// newSnapshot resolves a configuration on this machine, writing nothing. The error joins all that is wrong.
func newSnapshot(opts Options, scope classes.Scope, config *Config) (*snapshot, error) {
	m, err := inspect(opts.FS, opts.Tree)
	if err != nil {
		return nil, err
	}
	if scope == classes.PodScope && m.version == 1 {
		return nil, &classes.Unavailable{Reason: "NoHierarchyInV1", Message: "cgroup v1 does not apply the limits of a pod's cgroup " +
			"to the containers in it; use cgroup v2, or a resource in container scope"}
	}
	resolver := &resolver{host: opts.FS, machine: m, matches: map[string]match{}}
	s := &snapshot{config: config, machine: m, classes: map[string]liveClass{}}
	s.status.Degraded = map[string]string{}
	weighing := false
	for _, class := range config.classes {
		resolved := resolver.resolve(class)
		weighing = weighing || resolved.weighs
		s.classes[class.name] = s.live(resolved.values, scope)
		if len(resolved.degraded) > 0 {
			s.status.Degraded[class.name] = strings.Join(resolved.degraded, "; ")
		}
	}
	s.status.Conditions = resolver.conditions(weighing)
	return s, resolver.err()
}

func (s *snapshot) live(v values, scope classes.Scope) liveClass {
	live := liveClass{values: v, touched: v, offered: true}
	if s.byRuntime(scope) {
		live.creation.Unified = unifiedMap(v)
	}
	return live
}

// byRuntime says whether the runtime sets the values: it does so for containers, in cgroup v2.
func (s *snapshot) byRuntime(scope classes.Scope) bool {
	return scope == classes.ContainerScope && s.machine.byRuntime
}

// inherit keeps of the previous snapshot what running containers may have.
func (s *snapshot) inherit(previous *snapshot) *snapshot {
	s.recalled = previous.recalled
	for name, old := range previous.classes {
		live, stays := s.classes[name]
		if !stays {
			if old.offered {
				old.configured = old.values
			}
			old.offered, old.values = false, s.present(old.configured)
			s.classes[name] = old
			continue
		}
		live.touched = old.touched.merge(live.values)
		s.classes[name] = live
	}
	return s
}

// released is the snapshot without what is kept for classes that are not in use.
func (s *snapshot) released(inUse func(class string) bool) *snapshot {
	kept := *s
	kept.classes = maps.Clone(s.classes)
	for name, live := range s.classes {
		switch {
		case inUse(name):
		case !live.offered:
			delete(kept.classes, name)
		default:
			live.touched = live.values
			kept.classes[name] = live
		}
	}
	return &kept
}

// change is what leads from one class to another; known is false when nothing is known of the class to leave.
func (s *snapshot) change(from, to string) (change values, known bool, err error) {
	target, err := s.valuesOf(to)
	if err != nil {
		return values{}, false, err
	}
	left, known := s.classes[from]
	if from == classes.SystemDefault {
		left, known = liveClass{}, true
	}
	return left.touched.merge(s.recalled).changeTo(target), known, nil
}

func (s *snapshot) touched() values {
	all := newValues().merge(s.recalled)
	for _, live := range s.classes {
		all = all.merge(live.touched)
	}
	return all
}

// settable is the part of a change that the kernel takes: that of disks which the machine has, and without the clearing of weights that
// they do not take.
func (s *snapshot) settable(change values) values {
	present := s.present(change)
	for file, w := range present.weights {
		maps.DeleteFunc(w.devices, func(dev device, weight uint64) bool { return weight == 0 && !s.machine.accepts[file][dev] })
	}
	return present
}
