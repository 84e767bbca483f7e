// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
)

// snapshot is a live configuration. It is immutable, so that hooks can read it while the next one is built.
type snapshot struct {
	// config is the applied configuration. It is nil before the first Apply.
	config  *Config
	machine iocgroup.Machine
	classes map[string]liveClass
	// costs has the parameters of iocost for disks.
	costs  map[iocgroup.Device]iocgroup.Cost
	status classes.BackendStatus
}

// liveClass is a class of a snapshot.
type liveClass struct {
	// values has the values that the class sets. If the class is not offered, they may name devices that the machine
	// lost.
	values iocgroup.Values
	// offered is false for a class that is still in use after it was removed from the configuration.
	offered bool
}

// newSnapshot resolves a configuration on this machine. It writes nothing. The error joins all problems.
func newSnapshot(cgroups *ioapply.Cgroups, scope classes.Scope, config *Config) (*snapshot, error) {
	m, err := cgroups.Inspect()
	if err != nil {
		return nil, err
	}
	if scope == classes.PodScope && m.Version == 1 {
		return nil, &classes.Unavailable{Reason: "NoHierarchyInV1", Message: "cgroup v1 does not apply the limits of a pod's cgroup " +
			"to the pod's containers; use cgroup v2, or container scope"}
	}

	resolver := &resolver{host: cgroups.FS, node: iodisks.NewNode(cgroups.FS), machine: m, matches: map[string]iodisks.Match{}}
	s := &snapshot{config: config, classes: map[string]liveClass{}}
	s.costs = resolver.resolveCosts(config.costs)
	s.status.Degraded = map[string]string{}
	for _, class := range config.classes {
		v, degraded := resolver.resolve(class)
		s.classes[class.name] = liveClass{values: v, offered: true}
		if len(degraded) > 0 {
			s.status.Degraded[class.name] = strings.Join(degraded, "; ")
		}
	}
	s.machine = resolver.machine
	s.status.Conditions = resolver.conditions(scope)
	return s, errors.Join(resolver.problems...)
}

// byRuntime reports whether the runtime writes the values of classes to cgroups. Runtimes do so only for containers,
// and only in cgroup v2. If the configuration sets Direct, the plugin writes all values instead.
func (s *snapshot) byRuntime(scope classes.Scope) bool {
	return scope == classes.ContainerScope && s.machine.ByRuntime && (s.config == nil || !s.config.direct)
}

// inherit adds the classes of the previous snapshot that were removed from the configuration.
func (s *snapshot) inherit(previous *snapshot) *snapshot {
	for name, old := range previous.classes {
		if _, stays := s.classes[name]; !stays {
			s.classes[name] = liveClass{values: old.values}
		}
	}
	return s
}

// released returns a copy of the snapshot without the classes that are neither offered nor in use.
func (s *snapshot) released(inUse func(class string) bool) *snapshot {
	kept := *s
	kept.classes = maps.Clone(s.classes)
	maps.DeleteFunc(kept.classes, func(name string, live liveClass) bool { return !live.offered && !inUse(name) })
	return &kept
}

func (s *snapshot) valuesOf(name string) (iocgroup.Values, error) {
	live, ok := s.classes[name]
	if !ok && name != classes.SystemDefault {
		return nil, fmt.Errorf("%w %q; available: %s", classes.ErrUnknownClass, name, cmp.Or(strings.Join(s.offered(), ", "), "none"))
	}
	if !live.offered {
		return s.machine.Present(live.values), nil
	}
	return live.values, nil
}

// filesOf returns the files with weights and latency targets that were applied or are wanted.
func (s *snapshot) filesOf(applied ioapply.Applied, wanted iocgroup.Values) []iocgroup.File {
	return s.machine.FilesIn(func(file iocgroup.File) bool {
		return iocgroup.Uses(applied.Values, file) || iocgroup.Uses(wanted, file)
	})
}

func (s *snapshot) offered() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s.classes)) {
		if s.classes[name].offered {
			names = append(names, name)
		}
	}
	return names
}

func (s *snapshot) settable(change iocgroup.Values) iocgroup.Values {
	return s.machine.Present(change).Only(func(of iocgroup.Setting) bool {
		return of.File == "" || change[of] != iocgroup.Value{} || s.machine.Accepts[of]
	})
}

// neutral returns a text without effect for each file of a change. A runtime stores the text of a file for a container,
// and cannot forget it. If the container's new class has no values for the file, Adjust replaces the stored text with
// the text from neutral.
func (s *snapshot) neutral(change iocgroup.Values) map[string]string {
	neutral, disks := map[string]string{}, s.machine.Disks()
	for of := range change {
		if of.File.IsWeight() {
			neutral[string(of.File)] = fmt.Sprintf("default %d", of.File.Initial())
		} else if len(disks) > 0 {
			one := iocgroup.Setting{File: of.File, Device: disks[0]}
			maps.Copy(neutral, iocgroup.Texts(iocgroup.Unified{}.Writes(iocgroup.Values{one: {}})))
		}
	}
	return neutral
}
