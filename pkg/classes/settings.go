// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// SettingName names a part of a container's OCI runtime specification that an NRI plugin can set.
type SettingName string

// These are the fields that an Adjustment can set. The text of a value is a number, or words such as
// "class=IOPRIO_CLASS_BE priority=4". The words are the fields of the NRI message that is named in parentheses below,
// in the order of the message. Fields that are zero are left out.
const (
	// SettingClosID is the resctrl group of the container.
	SettingClosID SettingName = "linux.intelRdt.closID"
	// SettingUnified is a file of cgroup v2. Setting.Key is the name of the file, e.g. "io.max".
	SettingUnified SettingName = "linux.resources.unified"
	// SettingOOMScoreAdj is a number from -1000 to 1000.
	SettingOOMScoreAdj SettingName = "process.oomScoreAdj"
	// SettingRlimit is a resource limit (POSIXRlimit). Setting.Key is the name of the limit, e.g. "RLIMIT_NOFILE".
	SettingRlimit SettingName = "process.rlimits"
	// SettingIOPriority is the I/O priority (LinuxIOPriority).
	SettingIOPriority SettingName = "process.ioPriority"
	// SettingScheduler is the CPU scheduling policy (LinuxScheduler).
	SettingScheduler SettingName = "process.scheduler"
	// SettingSysctl is a kernel parameter of the container's namespaces. Setting.Key is its name, e.g. "net.core.somaxconn".
	SettingSysctl SettingName = "linux.sysctl"
	// SettingMemoryPolicy is the NUMA memory policy (LinuxMemoryPolicy).
	SettingMemoryPolicy SettingName = "linux.memoryPolicy"
)

// Mutable reports whether the field of a running container can be changed. The runtime changes SettingUnified; a backend moves processes
// between the groups of SettingClosID. NRI cannot change any other field after the creation (LinuxContainerUpdate has only resources).
func (n SettingName) Mutable() bool { return n == SettingUnified || n == SettingClosID }

// Setting is one value of a container's specification that a class can set. Two resources that set the same Setting contradict each
// other.
type Setting struct {
	Name SettingName
	// Key distinguishes the values of a field that has several values, e.g. the files of SettingUnified. It is empty
	// for the other fields.
	Key string
}

// Unified returns the setting that is a file of cgroup v2, e.g. "memory.high".
func Unified(file string) Setting { return Setting{SettingUnified, file} }

// String returns the field's path in the specification, e.g. "linux.resources.unified[io.max]".
func (s Setting) String() string {
	if s.Key == "" {
		return string(s.Name)
	}
	return fmt.Sprintf("%s[%s]", s.Name, s.Key)
}

// Short returns the name of the field for users, e.g. "io.max" or "oomScoreAdj".
func (s Setting) Short() string {
	if s.Key != "" {
		return s.Key
	}
	return string(s.Name[strings.LastIndexByte(string(s.Name), '.')+1:])
}

// Compare orders settings by name and key. It builds no text, because hooks call it often.
func (s Setting) Compare(other Setting) int {
	return cmp.Or(strings.Compare(string(s.Name), string(other.Name)), strings.Compare(s.Key, other.Key))
}

// MarshalText implements encoding.TextMarshaler. It returns the text of String, which is the key of the setting in JSON.
func (s Setting) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It never fails.
func (s *Setting) UnmarshalText(text []byte) error {
	name, key, _ := strings.Cut(strings.TrimSuffix(string(text), "]"), "[")
	s.Name, s.Key = SettingName(name), key
	return nil
}

// Adjustment maps fields of a container's specification to values. A backend asks the runtime to set them. nil sets
// nothing.
type Adjustment map[Setting]string

// UnifiedFiles returns the adjustment that sets cgroup v2 files.
func UnifiedFiles(files map[string]string) Adjustment {
	adjustment := make(Adjustment, len(files))
	for file, text := range files {
		adjustment[Unified(file)] = text
	}
	return adjustment
}

// Merge returns the union of the settings of `a` and `other`. If both set a field, the value of `other` wins.
func (a Adjustment) Merge(other Adjustment) Adjustment {
	switch {
	case len(other) == 0:
		return a
	case len(a) == 0:
		return other
	}
	both := maps.Clone(a)
	maps.Copy(both, other)
	return both
}

// Unified returns the cgroup v2 files that the adjustment sets, with their values.
func (a Adjustment) Unified() map[string]string {
	files := map[string]string{}
	for setting, text := range a {
		if setting.Name == SettingUnified {
			files[setting.Key] = text
		}
	}
	return files
}

// Settings returns what the adjustment sets, sorted.
func (a Adjustment) Settings() []Setting {
	return slices.SortedFunc(maps.Keys(a), Setting.Compare)
}

// Restored returns a copy of the adjustment in which each field that has an original value has this value. When a
// container leaves a class, it thus gets the values that the kubelet requested.
func (a Adjustment) Restored(originals Adjustment) Adjustment {
	restored := maps.Clone(a)
	for setting := range restored {
		if original, ok := originals[setting]; ok {
			restored[setting] = original
		}
	}
	return restored
}

// Immutable returns the first field that differs between two adjustments of a container and cannot be changed while the container runs.
func Immutable(before, after Adjustment) (setting Setting, found bool) {
	for _, setting := range before.Merge(after).Settings() {
		if !setting.Name.Mutable() && before[setting] != after[setting] {
			return setting, true
		}
	}
	return Setting{}, false
}

// Spec has the values of a container's specification from which the values of a class can be computed, as the kubelet
// and the runtime have set them. Each value is 0 if it is not set.
type Spec struct {
	// MemoryLimit is in bytes. CPUQuota is in microseconds for each CPUPeriod. CPUShares is the weight of cgroup v1, from which runtimes
	// compute cpu.weight.
	MemoryLimit, CPUQuota int64
	CPUPeriod, CPUShares  uint64
	// Settings has the values of those fields that an Adjustment can set. It is nil except during the creation of the container.
	Settings Adjustment
	// Originals has the values that the container would have without classes, for the fields that classes have set.
	Originals Adjustment
}

// Setter is a BackendConfig whose classes set values in the specification of containers.
type Setter interface {
	// Sets returns what the classes can set, in a stable order.
	Sets() []Setting
}

// NodeSetter is a BackendConfig with settings of the whole node. Two resources with the same setting contradict each
// other, even if their scopes differ.
type NodeSetter interface {
	// SetsOfNode returns the settings in words for users.
	SetsOfNode() []string
}
