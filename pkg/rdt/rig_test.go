// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// removeClasses applies a configuration without classes, and removes their groups.
func removeClasses(t testing.TB, b *Backend) {
	t.Helper()
	must(t, b.Apply(t.Context(), &Config{}), b.Release(t.Context(), nobody))
}

func repair(t testing.TB, b *Backend) {
	t.Helper()
	_, err := b.Repair(t.Context())
	must(t, err)
}

// wantRepair repairs drift, and compares what was found.
func wantRepair(t testing.TB, b *Backend, want ...string) {
	t.Helper()
	if drift, err := b.Repair(t.Context()); err != nil || !slices.Equal(drift.Found, want) {
		t.Errorf("the repair has found %q, %v; want %q", drift.Found, err, want)
	}
}

// wantNoDrift fails the test if a repair finds drift.
func wantNoDrift(t testing.TB, b *Backend) {
	t.Helper()
	wantRepair(t, b)
}

// refuse lets the kernel refuse the calls for which is(call) is true.
func refuse(fs *sim.FS, errno syscall.Errno, is func(sim.Call) bool) {
	fs.Inject(func(call sim.Call) *sim.Fault {
		if is(call) {
			return &sim.Fault{Errno: errno}
		}
		return nil
	})
}

// applied returns the status that a configuration has according to check, and the one that it has when it is applied.
func applied(t testing.TB, b *Backend, text string) map[string]classes.BackendStatus {
	t.Helper()
	preview, err := b.Preview(t.Context(), parse(t, text))
	must(t, err)
	apply(t, b, text)
	return map[string]classes.BackendStatus{"check": preview, "status": b.Status()}
}

func conditionOf(status classes.BackendStatus, kind string) classes.Condition {
	at := slices.IndexFunc(status.Conditions, func(c classes.Condition) bool { return c.Type == kind })
	if at < 0 {
		return classes.Condition{}
	}
	return status.Conditions[at]
}

// altered is a machine on which read returns other contents of some files. It gets what the simulated machine returns.
type altered struct {
	*sim.FS
	read func(path string, data []byte, err error) ([]byte, error)
}

func (a altered) ReadFile(path string) ([]byte, error) {
	data, err := a.FS.ReadFile(path)
	return a.read(path, data, err)
}
