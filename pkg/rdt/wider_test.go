// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"fmt"
	"syscall"
	"testing"

	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// watched is a machine that tells what all groups have after every operation, also a failed one.
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

// wider says what a group has more than before and than after: bits of a cache that are not all of one of the two, or more
// bandwidth.
func wider(now, before, after Schemata) string {
	for schema, domains := range now {
		for id, value := range domains {
			old, last := before[schema][id], after[schema][id]
			if schema == MB && value > max(old, last) || schema != MB && value&^old != 0 && value&^last != 0 {
				return fmt.Sprintf("%s of %d is %x, before %x, after %x", schema, id, value, old, last)
			}
		}
	}
	return ""
}

func groupsIn(t *testing.T, fs *sim.FS) map[string]Schemata {
	t.Helper()
	return groupsOf(t, dump(fs, "schemata"))
}

// TestNoClassIsEverWiderThanBeforeOrAfter looks at what the machine has while a configuration is applied, and while one that is
// refused at any operation is taken back.
func TestNoClassIsEverWiderThanBeforeOrAfter(t *testing.T) {
	const optional = "options: {mb: {optional: true}}"
	specs := machines()
	specs["AMD"] = sim.AMDSpec()
	for name, spec := range specs {
		if spec.L3 == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			after := sim.New(spec)
			apply(t, newBackend(after, nil), optional+others)
			wanted := groupsIn(t, after)
			for n := 1; ; n++ {
				fs := sim.New(spec)
				apply(t, newBackend(fs, nil), optional+twoPartitions)
				if watchApply(t, fs, n, optional+others, wanted) {
					return // operation n was not reached
				}
			}
		})
	}
}

// watchApply applies a configuration, lets operation n fail, and says whether there was none.
func watchApply(t *testing.T, fs *sim.FS, n int, config string, wanted map[string]Schemata) (done bool) {
	t.Helper()
	before := groupsIn(t, fs)
	looks := 0
	w := watched{fs, func(op string) {
		looks++
		for name, schemata := range groupsIn(t, fs) {
			if before[name] == nil {
				continue // a new group, which nobody is in
			}
			if more := wider(schemata, before[name], final(name, before, wanted)); more != "" {
				t.Errorf("failing operation %d: after %s group %q is wider: %s", n, op, name, more)
			}
		}
	}}
	fs.Inject(func(call sim.Call) *sim.Fault {
		if call.N == n {
			return &sim.Fault{Errno: syscall.EINVAL}
		}
		return nil
	})
	err := newBackend(w, nil).Apply(t.Context(), parse(t, config))
	if err == nil && looks < 4 {
		t.Errorf("only %d operations were watched", looks)
	}
	return err == nil
}
