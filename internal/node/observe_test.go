// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
)

// TestValuesThatChangedAreNotAskedOfAHungRuntimeForEachContainer is of class files with other values in a class that containers have.
func TestValuesThatChangedAreNotAskedOfAHungRuntimeForEachContainer(t *testing.T) {
	f := newFixture(t)
	runtime := &slowRuntime{refuses: map[string]error{}}
	for _, name := range []string{"a", "b", "c", "d"} {
		f.mustRun(t, pod(name, asking("test.example/disk=slow")), container("c-"+name))
		runtime.refuses["c-"+name] = context.DeadlineExceeded
	}
	f.Connected(runtime, state.RuntimeInfo{Name: "test"})
	f.backends[disk].Blur(true) // they are in no class whose values these are
	f.Reconcile(t.Context())
	if len(runtime.asked) != 1 {
		t.Errorf("asked for %v, want one", runtime.asked)
	}
}

func TestAStartTimeThatIsNotKnownEndsNothing(t *testing.T) {
	f := newFixture(t)
	at := uint64(500)
	f.restart(t, func(o *node.Options) { o.StartTime = func(int) (uint64, bool) { return at, true } })
	f.mustConfigure(t, files)
	f.mustRun(t, pod("a", asking("test.example/cache=gold")), container("c-a"))
	for _, at = range []uint64{500, 0, 500} {
		f.Repair(t.Context())
		f.wantClass(t, "c-a", cache, "gold/pod")
	}
	at = 600
	f.Repair(t.Context())
	if got := f.has("c-a", cache); got != "not reported" {
		t.Errorf("it is in %q still, and its process is another one", got)
	}
}

func TestAResourceThatDrainsIsMendedAgainAfterALookThatFailed(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", asking("test.example/disk=slow")), container("c-a"))
	const gone = "- name: test.example/disk\n  classes: [{name: fast, capacity: 2}, {name: slow}]\n  test: {names: [fast, slow]}\n"
	f.mustConfigure(t, strings.Replace(files, gone, "", 1))
	f.backends[disk].Fail("mend", errors.New("input/output error"))
	f.Repair(t.Context())
	f.backends[disk].Fail("mend", nil)
	f.backends[disk].Lose("c-a")
	f.Repair(t.Context())
	f.wantClass(t, "c-a", disk, "slow/pod")
	if got := f.backends[disk].Enforced()["c-a"]; got != "slow" {
		t.Errorf("the kernel has it in %q", got)
	}
}
