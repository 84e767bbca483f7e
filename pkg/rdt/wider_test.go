// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"fmt"
	"maps"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// watched is a machine that calls the function `look` after every operation, even if the operation fails.
type watched struct {
	*sim.FS
	look func(op string)
}

func (w watched) WriteFile(path string, data []byte) error {
	defer w.look(fmt.Sprintf("write %q to %s", data, path))
	return w.FS.WriteFile(path, data)
}

func (w watched) Mkdir(path string) error {
	defer w.look("make " + path)
	return w.FS.Mkdir(path)
}

func (w watched) Remove(path string) error {
	defer w.look("remove " + path)
	return w.FS.Remove(path)
}

// wider describes a value of a group that is wider than before and after the change. Such a value is a mask that
// neither the old nor the new mask contains, or a bandwidth that is larger than the old and the new one.
func wider(now, before, after resctrl.Schemata) string {
	for domain, value := range now {
		old, last := before[domain], after[domain]
		if domain.Schema == resctrl.MB && value > max(old, last) || domain.Schema != resctrl.MB && value&^old != 0 && value&^last != 0 {
			return fmt.Sprintf("%s is %x, before %x, after %x", domain, value, old, last)
		}
	}
	return ""
}

func groupsIn(t *testing.T, fs *sim.FS) map[string]resctrl.Schemata {
	t.Helper()
	return groupsOf(t, dump(fs, "schemata"))
}

// TestNoClassTemporarilyHasMoreThanBeforeAndAfterAChange checks all groups while a configuration is applied, and while
// it is rolled back because an operation failed. Each operation fails once.
func TestNoClassTemporarilyHasMoreThanBeforeAndAfterAChange(t *testing.T) {
	const optional = "options: {mb: {optional: true}}"
	const lowAndHigh = "partitions: {p: {l3Allocation: '0x3f', classes: {a: }}, q: {l3Allocation: '0xfc0', classes: {b: }}}"
	const highAndLow = "partitions: {p: {l3Allocation: '0xfc0', classes: {a: }}, q: {l3Allocation: '0x3f', classes: {b: }}}"
	specs := machines()
	specs["AMD"] = sim.AMDSpec()
	for name, spec := range specs {
		if spec.L3 == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			changes := [][2]string{{optional + twoPartitions, optional + others}, {lowAndHigh, highAndLow}}
			if spec.Options == "cdp" {
				changes = changes[:1] // Plan cannot swap code and data of two groups without overlap
			}

			for _, configs := range changes {
				after := sim.New(spec)
				apply(t, newBackend(after, nil), configs[1])
				wanted := groupsIn(t, after)
				for n, done := 1, false; !done; n++ { // the loop ends when there are fewer than n operations
					fs := sim.New(spec)
					apply(t, newBackend(fs, nil), configs[0])
					done = watchApply(t, fs, n, configs[1], wanted)
				}
			}
		})
	}
}

// watchApply applies a configuration, and lets operation `n` fail. It returns true if there are fewer than `n` operations.
func watchApply(t *testing.T, fs *sim.FS, n int, config string, wanted map[string]resctrl.Schemata) (done bool) {
	t.Helper()
	before := groupsIn(t, fs)
	looks := 0
	w := watched{fs, func(op string) {
		looks++
		now := groupsIn(t, fs)
		maps.DeleteFunc(now, func(name string, _ resctrl.Schemata) bool { return before[name] == nil }) // ignores new groups, because they have no tasks
		if overlap := newOverlap(now, before, wanted); overlap != "" {
			t.Errorf("failing operation %d: after %s groups overlap: %s", n, op, overlap)
		}
		for name, schemata := range now {
			if more := wider(schemata, before[name], final(name, before, wanted)); more != "" {
				t.Errorf("failing operation %d: after %s group %q is wider: %s", n, op, name, more)
			}
		}
	}}

	refuse(fs, syscall.EINVAL, func(call sim.Call) bool { return call.N == n })

	err := newBackend(w, nil).Apply(t.Context(), parse(t, config))
	if err == nil && looks < 4 {
		t.Errorf("only %d operations were checked, want at least 4", looks)
	}

	return err == nil
}
