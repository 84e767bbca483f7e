// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

var _ classes.StoredValueChecker = (*Backend)(nil)

// IsStale implements classes.StoredValueChecker. It remembers stored values that no class has, so that later changes of
// a class clear them.
func (b *Backend) IsStale(class string, files map[string]string) bool {
	now := b.live.Load()
	if now.config == nil || !now.byRuntime(b.scope) {
		return false
	}

	stored, deviceGone := now.stored(files)
	former := stored.only(func(s setting) bool { return !now.named.has(s) })
	if len(former) > 0 {
		b.goLive(func(now *snapshot) *snapshot {
			next := *now
			next.former = now.former.merge(former)
			return &next
		})
	}

	wanted, err := now.valuesOf(class)
	return deviceGone || err == nil && !stored.equals(wanted)
}

func (s *snapshot) stored(files map[string]string) (stored values, deviceGone bool) {
	stored = values{}
	for _, file := range []string{ioMax, string(ioWeight), string(ioBFQWeight)} {
		var set strings.Builder
		for line := range strings.Lines(files[file]) {
			name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
			dev, err := parseDevice(name)
			deviceGone = deviceGone || err == nil && s.machine.names[dev] == ""
			if text != "default" {
				set.WriteString(line)
			}
		}

		one := values{}
		known := file == ioMax || slices.Contains(s.machine.weightFiles, weightFile(file))
		if err := (unified{}).parse(one, file, []byte(set.String())); err == nil && known {
			stored = stored.merge(one)
		}
	}
	return s.machine.present(stored).only(func(of setting) bool { return stored[of] != of.initial() }), deviceGone
}
