// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

// fewer configures only the resource cache, with one class, iron.
const fewer = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: test.example/cache
  test: {names: [iron]}
`

func TestAConfigurationThatCannotBeAppliedLeavesTheFormerOneLive(t *testing.T) {
	f := newFixture(t)
	f.backends[cache].Fail("apply", errors.New("out of CLOSIDs"))
	if err := f.configure(t, fewer); err == nil {
		t.Fatal("no error")
	}
	status := f.Status()
	if status.Config.Err == nil || !strings.Contains(status.Config.Err.Error(), "out of CLOSIDs") {
		t.Errorf("the status has the error %v, want the error of the kernel", status.Config.Err)
	}
	f.mustRun(t, pod("a", requesting("test.example/disk=fast")), container("c1")) // only the former configuration has this class
}

func TestAConfigurationThatFailsHalfWayIsRolledBack(t *testing.T) {
	f := newFixture(t)
	f.backends[disk].Fail("apply", errors.New("no such device"))
	other := strings.ReplaceAll(files, "bronze", "iron")
	if err := f.configure(t, other); err == nil {
		t.Fatal("no error")
	}
	live, applied := f.backends[cache].Live() // applied by newFixture, by this configuration, and by the rollback
	if strings.Join(live, " ") != "gold silver bronze" || applied != 3 {
		t.Errorf("classes %v are live after %d calls of Apply, want the former ones after 3", live, applied)
	}
}

func TestAConfigurationIsCheckedBeforeAnythingIsApplied(t *testing.T) {
	f := newFixture(t)
	f.backends[disk].Fail("check", errors.New("no such device"))
	if err := f.configure(t, strings.ReplaceAll(files, "bronze", "iron")); err == nil || !strings.Contains(err.Error(), "a.yaml:") {
		t.Errorf("error %v does not name the file", err)
	}
	if _, applied := f.backends[cache].Live(); applied != 1 {
		t.Errorf("applied %d times, want only once, by newFixture", applied)
	}
}

// TestARemovedClassDrains: the container of a removed class keeps it until its end, and no new container gets the
// class.
func TestARemovedClassDrains(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", requesting("test.example/cache=gold,test.example/disk=slow")), container("c1"))
	f.mustConfigure(t, fewer)
	f.wantClass(t, "c1", cache, "gold/pod")
	if got := nodetest.Draining(f.Store); got != 2 {
		t.Errorf("%d assignments drain, want 2", got)
	}

	if got := f.Status().Resources; len(got) != 2 || got[1].Name != disk || got[1].InUse["slow"] != 1 {
		t.Errorf("the status has the resources %+v, want also the removed one, which is in use", got)
	}

	if _, err := f.run(t, pod("b", requesting("test.example/cache=gold")), container("c2")); !errors.Is(err, classes.ErrUnknownClass) {
		t.Errorf("error is %v, want ErrUnknownClass", err)
	}

	f.Stop("c1")
	if got := nodetest.Draining(f.Store); got != 0 {
		t.Errorf("%d assignments drain after the end, want 0", got)
	}
}

func TestAClassThatIsConfiguredAgainNoLongerDrains(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", requesting("test.example/cache=gold,test.example/disk=slow")), container("c1"))
	f.mustConfigure(t, fewer)
	f.mustConfigure(t, files)
	f.Reconcile(t.Context())
	f.wantClass(t, "c1", cache, "gold/pod")
	f.wantClass(t, "c1", disk, "slow/pod")
	if got := nodetest.Draining(f.Store); got != 0 {
		t.Errorf("%d assignments drain, want 0", got)
	}
	if _, err := f.run(t, pod("b", requesting("test.example/cache=gold")), container("c2")); !errors.Is(err, classes.ErrClassFull) {
		t.Errorf("error is %v, want ErrClassFull, because the first container has kept its slot", err)
	}
}

func TestAResourceThatIsFoundMissingOnlyWhenAppliedIsUnavailable(t *testing.T) {
	f := newFixture(t)
	f.backends[cache].Fail("apply", &classes.Unavailable{Reason: "NoCPUSupport", Message: "the CPU has no such thing"})
	f.mustConfigure(t, files)
	if got := f.Status().Resources[0].Unavailable; got == nil || got.Reason != "NoCPUSupport" {
		t.Errorf("the resource is unavailable because of %v, want NoCPUSupport", got)
	}
	f.mustRun(t, pod("a", requesting("test.example/disk=fast")), container("c1")) // the classes of other resources are live
}

func TestRunningContainersFollowANewDefault(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("default", nil), container("c1"))
	f.mustRun(t, pod("asked", requesting("test.example/cache=bronze")), container("c2"))
	f.mustConfigure(t, strings.ReplaceAll(files, "defaultClass: bronze", "defaultClass: silver"))
	if got := f.Reconcile(t.Context()); got != 1 {
		t.Errorf("%d holders were moved, want 1", got)
	}
	f.wantClass(t, "c1", cache, "silver/default")
	f.wantClass(t, "c2", cache, "bronze/pod")
	if got := f.Reconcile(t.Context()); got != 0 {
		t.Errorf("%d holders were moved, want none without drift", got)
	}
}

func TestAContainerIsReportedInItsObservedClassUntilItCanFollowANewDefault(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("default", nil), container("c1"))
	f.backends[cache].Fail("enforce silver", errors.New("refused"))
	f.mustConfigure(t, strings.ReplaceAll(files, "defaultClass: bronze", "defaultClass: silver"))
	f.Reconcile(t.Context())
	f.wantClass(t, "c1", cache, "bronze/adopted")
	f.backends[cache].Fail("enforce silver", nil)
	f.Reconcile(t.Context())
	f.wantClass(t, "c1", cache, "silver/default")
}

func TestClassFilesAreAppliedAlthoughThePreviousClassesCannotBeReleased(t *testing.T) {
	f := newFixture(t)
	f.backends[cache].Fail("release", errors.New("device or resource busy"))
	f.mustConfigure(t, strings.ReplaceAll(files, "defaultClass: bronze", "defaultClass: silver"))
	if status := f.Status(); status.Config.Err != nil || status.Resources[0].DefaultClass != "silver" {
		t.Errorf("the configuration has the error %v and the default class %q, want no error and silver", status.Config.Err, status.Resources[0].DefaultClass)
	}
}

// TestANewResourceOfARefusedConfigurationIsWithdrawn refuses class files after one of their resources was applied. Its
// classes must not stay in the kernel.
func TestANewResourceOfARefusedConfigurationIsWithdrawn(t *testing.T) {
	f := newFixture(t)
	f.restart(t)
	f.backends[cache] = nodetest.NewBackend() // without the classes of the first process
	f.backends[disk].Fail("apply", errors.New("no such device"))
	if err := f.configure(t, files); err == nil {
		t.Fatal("no error")
	}
	if live, _ := f.backends[cache].Live(); len(live) > 0 {
		t.Errorf("the backend has the classes %v, want none", live)
	}
}

func TestTheClassesOfARemovedResourceAreRemovedFromTheKernel(t *testing.T) {
	f := newFixture(t)
	f.mustConfigure(t, fewer)
	if live, _ := f.backends[disk].Live(); len(live) > 0 {
		t.Errorf("the backend has the classes %v, want none", live)
	}
}
