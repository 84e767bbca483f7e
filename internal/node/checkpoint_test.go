// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// fullDisk makes writes of the checkpoint fail.
type fullDisk struct {
	state.Changes
	t    *testing.T
	path string
	full bool
}

func (d *fullDisk) Set(id string, changed []classes.Assignment) error {
	if d.full {
		if err := os.Symlink("/dev/full", d.path+".new"); err != nil {
			d.t.Error(err)
		}
	}
	return d.Changes.Set(id, changed)
}

// TestAnUpdateThatCannotBeSavedIsNotMade fills the disk of the checkpoint. When the disk has space again, the same update
// succeeds, and survives a restart.
func TestAnUpdateThatCannotBeSavedIsNotMade(t *testing.T) {
	f := newFixture(t)
	p := pod("a", requesting("test.example/disk=slow"))
	c := f.mustRun(t, p, container("c1"))
	d := &fullDisk{t: t, path: f.path, full: true}
	f.restart(t, func(o *node.Options) { d.Changes, o.Changes = o.Changes, d })
	f.mustConfigure(t, files)
	f.Synchronize(nil, []state.Existing{running(p, c)})
	f.Reconcile(t.Context())
	before := f.Assignments()
	for range 2 {
		err := f.Update(t.Context(), ownerA, map[string]string{cache: "gold", disk: "fast"})
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), f.path) {
			t.Errorf("error is %v, want ENOSPC and the name of the file", err)
		}
		if diff := cmp.Diff(before, f.Assignments()); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
		f.wantClass(t, "c1", cache, "bronze/default")
		f.wantClass(t, "c1", disk, "slow/pod")
	}

	if _, err := f.run(t, pod("b", requesting("test.example/cache=gold")), container("c2")); err != nil {
		t.Errorf("the slot of the update is not free: %v", err)
	}

	f.Stop("c2")
	d.full = false
	if err := f.Update(t.Context(), ownerA, map[string]string{cache: "gold", disk: "fast"}); err != nil {
		t.Fatalf("an update after the disk has space again: %v", err)
	}

	f.restart(t)
	f.mustConfigure(t, files)
	f.Synchronize(nil, []state.Existing{running(p, c)})
	f.Reconcile(t.Context())
	f.wantClass(t, "c1", cache, "gold/update")
	f.wantClass(t, "c1", disk, "fast/update")
}
