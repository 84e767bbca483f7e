// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

func (f *fixture) wantMends(t *testing.T, want map[node.Mend]uint64) {
	t.Helper()
	if diff := cmp.Diff(want, f.Status().Mends); diff != "" {
		t.Errorf("mends (-want +got):\n%s", diff)
	}
}

// resource is what the status tells of a resource.
func (f *fixture) resource(t *testing.T, name string) node.ResourceStatus {
	t.Helper()
	for _, r := range f.Status().Resources {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no %s in the status", name)
	return node.ResourceStatus{}
}

func TestWhatLostItsClassIsBroughtBack(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", asking("test.example/cache=gold")), container("c-a"))
	f.mustRun(t, pod("b", nil), container("c-b"))
	f.Inspect(t.Context())
	f.wantMends(t, map[node.Mend]uint64{})
	f.backends[cache].Lose("c-a")
	f.backends[cache].Lose("c-b")
	f.Inspect(t.Context())
	f.wantClass(t, "c-a", cache, "gold/pod")
	f.wantClass(t, "c-b", cache, "bronze/default")
	f.wantMends(t, map[node.Mend]uint64{{Resource: cache, What: node.MendedAssignment}: 2})

	// What cannot be brought back is told as it is, and is not counted before it is.
	f.backends[cache].Lose("c-a")
	f.backends[cache].Fail("enforce gold", errors.New("refused"))
	for range 2 {
		f.Inspect(t.Context())
		f.wantClass(t, "c-a", cache, "/adopted")
	}
	if used := f.resource(t, cache).InUse["gold"]; used != 1 {
		t.Errorf("%d slots of gold in use, want the one that is still its own", used)
	}
	f.backends[cache].Fail("enforce gold", nil)
	f.Inspect(t.Context())
	f.wantClass(t, "c-a", cache, "gold/pod")
	f.wantMends(t, map[node.Mend]uint64{{Resource: cache, What: node.MendedAssignment}: 3})
}

func TestDamageToAConfigurationIsTold(t *testing.T) {
	f := newFixture(t)
	f.backends[disk].Damage(classes.Mended{Found: []string{"disk vdb is gone", "disk vdc is new"}})
	for range 2 {
		f.Inspect(t.Context())
	}
	f.wantMends(t, map[node.Mend]uint64{{Resource: disk, What: node.MendedConfiguration}: 1})
	conditions := f.resource(t, disk).Conditions
	if len(conditions) != 1 || conditions[0].Type != "KernelStateKept" || !conditions[0].Healthy ||
		!strings.HasPrefix(conditions[0].Message, "1 times") || !strings.HasSuffix(conditions[0].Message, "disk vdb is gone; disk vdc is new") {
		t.Errorf("conditions %v", conditions)
	}
}

func TestAResourceThatIsLostIsWithdrawnAndComesBack(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", asking("test.example/cache=gold")), container("c-a"))
	f.mustRun(t, pod("b", nil), container("c-b"))
	for _, failure := range []error{
		&classes.Unavailable{Reason: "NotMounted", Message: "resctrl is not mounted"}, errors.New("the kernel refused a group"),
	} {
		f.backends[cache].Fail("mend", failure)
		f.backends[cache].Fail("check", failure)
		f.backends[cache].Lose("c-a")
		f.backends[cache].Lose("c-b")
		changed := f.Changed()
		f.Inspect(t.Context())
		unavailable := f.resource(t, cache).Unavailable
		if unavailable == nil || !strings.Contains(unavailable.Message, failure.Error()) {
			t.Errorf("unavailable: %v, want %v", unavailable, failure)
		}
		select {
		case <-changed:
		default:
			t.Error("nobody is told")
		}
		f.wantClass(t, "c-a", cache, "/adopted")
		f.wantClass(t, "c-b", cache, "/")
		if _, _, err := f.CreateContainer(pod("c", asking("test.example/cache=silver")), container("c-c")); !errors.Is(err, classes.ErrUnavailable) {
			t.Errorf("a container that asks for it: %v", err)
		}
		if _, _, err := f.CreateContainer(pod("d", nil), container("c-d")); err != nil {
			t.Errorf("a container that asks for nothing: %v", err)
		}
		f.Stop("c-d")

		f.backends[cache].Fail("mend", nil)
		f.backends[cache].Fail("check", nil)
		f.Inspect(t.Context())
		if unavailable := f.resource(t, cache).Unavailable; unavailable != nil {
			t.Errorf("still unavailable: %v", unavailable)
		}
		f.wantClass(t, "c-a", cache, "gold/pod")
		f.wantClass(t, "c-b", cache, "bronze/default")
	}
}

// TestAResourceThatIsNotThereYetIsOfferedOnceItIs is for a machine whose resctrl is mounted by somebody later.
func TestAResourceThatIsNotThereYetIsOfferedOnceItIs(t *testing.T) {
	f := newFixture(t)
	f.restart(t)
	f.backends[cache].Lack(&classes.Unavailable{Reason: "NotMounted", Message: "resctrl is not mounted"})
	if err := f.configure(t, files); err != nil {
		t.Fatal(err)
	}
	f.Inspect(t.Context())
	if f.resource(t, cache).Unavailable == nil {
		t.Error("available")
	}
	f.backends[cache].Lack(nil)
	f.Inspect(t.Context())
	f.mustRun(t, pod("a", asking("test.example/cache=gold")), container("c-a"))
	f.wantClass(t, "c-a", cache, "gold/pod")
}

// TestTheRuntimeForgetsDevicesThatAreGone looks at what the runtime is told: it would set again what it has stored.
func TestTheRuntimeForgetsDevicesThatAreGone(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", asking("test.example/disk=slow")), container("c-a"))
	f.mustRun(t, pod("b", nil), container("c-b"))
	f.mustRun(t, pod("c", asking("test.example/disk=slow")), container("c-c"))
	if err := f.Update(t.Context(), classes.Owner{PodUID: "uid-c", Container: "main"}, map[string]string{disk: ""}); err != nil {
		t.Fatal(err)
	}
	clear(f.unified)
	f.Inspect(t.Context())
	if len(f.unified) > 0 {
		t.Errorf("the runtime was told %v while nothing is gone", f.unified)
	}
	f.backends[disk].Damage(classes.Mended{Found: []string{"disk vdb is gone"}, DevicesGone: true})
	f.Disconnected()
	f.Inspect(t.Context())
	f.Connected(f, node.RuntimeInfo{Name: "test"})
	for range 2 {
		f.Inspect(t.Context())
		want := map[string]map[string]string{"c-a": {"test.class": "slow"}, "c-c": {"test.class": ""}}
		if diff := cmp.Diff(want, f.unified); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	}
	f.wantClass(t, "c-a", disk, "slow/pod")
	f.wantClass(t, "c-c", disk, "/update")
}

func TestWhatEndedUnheardIsForgotten(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", asking("test.example/cache=gold")), container("c-a"))
	f.backends[disk].Fail("observe", classes.ErrEnded)
	f.Inspect(t.Context())
	if left := f.Assignments(); len(left) > 0 {
		t.Errorf("still known: %v", left)
	}
	f.backends[disk].Fail("observe", nil)
	f.Stop("c-a") // the late word
	f.mustRun(t, pod("b", asking("test.example/cache=gold")), container("c-b"))
}

func TestProcessesThatAreStartedLaterAreGathered(t *testing.T) {
	f := newFixture(t)
	var exist []node.Existing
	for name, annotations := range map[string]map[string]string{
		"a": asking("test.example/cache=silver"), "b": asking("test.example/cache=silver"), "c": nil,
	} {
		p := pod(name, annotations)
		exist = append(exist, running(p, f.mustRun(t, p, container("c-"+name))))
	}
	f.backends[cache].Gathered()
	f.Gather(t.Context())
	if looked := f.backends[cache].Gathered(); len(looked) > 0 {
		t.Errorf("looked at %v, and no class was changed", looked)
	}
	if err := f.Update(t.Context(), ownerA, map[string]string{cache: "gold"}); err != nil {
		t.Fatal(err)
	}
	f.backends[cache].Stray("c-a")
	for range 2 {
		f.Gather(t.Context())
	}
	if looked := f.backends[cache].Gathered(); !cmp.Equal(looked, []string{"c-a gold", "c-a gold"}) || f.backends[cache].Strayed("c-a") {
		t.Errorf("looked at %v", looked)
	}
	f.wantMends(t, map[node.Mend]uint64{{Resource: cache, What: node.MendedThreads}: 1})

	// A changed default is a change of class, too. What a container was created in is known over a restart.
	if err := f.configure(t, strings.ReplaceAll(files, "defaultClass: bronze", "defaultClass: silver")); err != nil {
		t.Fatal(err)
	}
	f.restart(t)
	if err := f.configure(t, strings.ReplaceAll(files, "defaultClass: bronze", "defaultClass: silver")); err != nil {
		t.Fatal(err)
	}
	f.Synchronize(nil, exist)
	f.Reconcile(t.Context())
	f.Gather(t.Context())
	if looked := f.backends[cache].Gathered(); len(looked) != 2 || !slices.Contains(looked, "c-c silver") {
		t.Errorf("looked at %v, want the container with the default, too", looked)
	}
	f.Inspect(t.Context())
	if looked := f.backends[cache].Gathered(); len(looked) != 3 {
		t.Errorf("looked at %v, want all", looked)
	}
}
