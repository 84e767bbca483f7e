// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import "strings"

// IsStale implements classes.StoredValueChecker.
func (b *Backend) IsStale(class string, stored map[string]string) bool {
	return b.Recall(class, stored) || b.StoresGone(stored)
}

// Recall returns whether stored values are not those of the class, and remembers those that no class has.
func (b *Backend) Recall(class string, unified map[string]string) (other bool) {
	now := b.live.Load()
	if now.config == nil || !now.byRuntime(b.scope) {
		return false
	}
	stored := now.stored(unified)
	if _, former := stored.split(now.named); !former.isEmpty() {
		b.goLive(func(now *snapshot) *snapshot {
			next := *now
			next.recalled = now.recalled.merge(former)
			return &next
		})
	}
	wanted, err := now.valuesOf(class)
	return err == nil && !stored.equals(wanted)
}

// stored are the values that files of cgroup v2 set for the disks of this machine. What cannot be read is not of our making.
func (s *snapshot) stored(unified map[string]string) values {
	state, format := newValues(), layoutOf(s.machine.version)
	for _, file := range format.files(s.machine.weightFiles) {
		var set []string
		for line := range strings.Lines(unified[file]) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasSuffix(line, " default") {
				set = append(set, line)
			}
		}
		one := newValues()
		if err := format.parse(one, file, []byte(strings.Join(set, "\n"))); err == nil {
			state = state.merge(one)
		}
	}
	for file, w := range state.weights {
		if w.base == file.initial() {
			w.base = 0 // sets nothing
			state.weights[file] = w
		}
	}
	return s.present(state)
}
