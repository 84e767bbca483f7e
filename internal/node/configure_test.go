// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/node/nodetest"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// fewer is another configuration: other classes of cache, and no other resource.
const fewer = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: test.example/cache
  test: {names: [iron]}
`

func TestAConfigurationThatCannotBeAppliedLeavesTheOneBeforeLive(t *testing.T) {
	f := newFixture(t)
	f.backends[cache].Fail("apply", errors.New("out of CLOSIDs"))
	if err := f.configure(t, fewer); err == nil {
		t.Fatal("no error")
	}
	status := f.Status()
	if status.Config.Err == nil || !strings.Contains(status.Config.Err.Error(), "out of CLOSIDs") {
		t.Errorf("status says %v", status.Config.Err)
	}
	f.mustRun(t, pod("a", asking("test.example/disk=fast")), container("c1"))
}

func TestAConfigurationThatFailsHalfWayIsPutBack(t *testing.T) {
	f := newFixture(t)
	f.backends[disk].Fail("apply", errors.New("no such device"))
	other := strings.ReplaceAll(files, "bronze", "iron")
	if err := f.configure(t, other); err == nil {
		t.Fatal("no error")
	}
	live, applied := f.backends[cache].Live()
	if strings.Join(live, " ") != "gold silver bronze" || applied != 3 {
		t.Errorf("classes %v are live after %d applications, want those of before after 3", live, applied)
	}
}

func TestAConfigurationIsCheckedBeforeAnythingIsApplied(t *testing.T) {
	f := newFixture(t)
	f.backends[disk].Fail("check", errors.New("no such device"))
	if err := f.configure(t, strings.ReplaceAll(files, "bronze", "iron")); err == nil || !strings.Contains(err.Error(), "a.yaml:") {
		t.Errorf("error %v does not name the file", err)
	}
	if _, applied := f.backends[cache].Live(); applied != 1 {
		t.Errorf("applied %d times, want once", applied)
	}
}

func TestAResourceThatTheMachineLacksIsRefusedWithTheReason(t *testing.T) {
	f := newFixture(t)
	f.backends[cache].Lack(&classes.Unavailable{Reason: "NoCPUSupport", Message: "the CPU has no such thing"})
	f.mustConfigure(t, files)
	_, err := f.run(t, pod("a", asking("test.example/cache=gold")), container("c1"))
	if !errors.Is(err, classes.ErrUnavailable) || !strings.Contains(err.Error(), "the CPU has no such thing") {
		t.Errorf("error is %v", err)
	}
	f.mustRun(t, pod("b", nil), container("c2"))
	f.wantClass(t, "c2", cache, "/")
}

func TestAClassThatIsGoneDrains(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", asking("test.example/cache=gold,test.example/disk=slow")), container("c1"))
	f.mustConfigure(t, fewer)
	f.wantClass(t, "c1", cache, "gold/pod")
	if got := f.Draining(); got != 2 {
		t.Errorf("%d assignments drain, want 2", got)
	}
	if got := f.Status().Resources; len(got) != 2 || got[1].Name != disk || got[1].InUse["slow"] != 1 {
		t.Errorf("status is %+v; the resource that is gone and in use is to be shown", got)
	}
	if _, err := f.run(t, pod("b", asking("test.example/cache=gold")), container("c2")); !errors.Is(err, classes.ErrUnknownClass) {
		t.Errorf("error is %v, want ErrUnknownClass", err)
	}
	f.Stop("c1")
	if got := f.Draining(); got != 0 {
		t.Errorf("%d assignments drain after the end, want 0", got)
	}
}

func TestAResourceThatShowsItselfMissingOnlyWhenAppliedIsUnavailableToo(t *testing.T) {
	f := newFixture(t)
	f.backends[cache].Fail("apply", &classes.Unavailable{Reason: "NoCPUSupport", Message: "the CPU has no such thing"})
	f.mustConfigure(t, files)
	if got := f.Status().Resources[0].Unavailable; got == nil || got.Reason != "NoCPUSupport" {
		t.Errorf("unavailable because of %v", got)
	}
	f.mustRun(t, pod("a", asking("test.example/disk=fast")), container("c1"))
}

func TestWhatRunsIsBroughtAlongWithNewClassFiles(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("default", nil), container("c1"))
	f.mustRun(t, pod("asked", asking("test.example/cache=bronze")), container("c2"))
	f.mustConfigure(t, strings.ReplaceAll(files, "defaultClass: bronze", "defaultClass: silver"))
	if got := f.Reconcile(t.Context()); got != 1 {
		t.Errorf("brought %d along, want 1", got)
	}
	f.wantClass(t, "c1", cache, "silver/default")
	f.wantClass(t, "c2", cache, "bronze/pod")
	if got := f.Reconcile(t.Context()); got != 0 {
		t.Errorf("mended %d where nothing was amiss", got)
	}
}

func TestWhatCannotBeBroughtAlongIsReportedAsItIs(t *testing.T) {
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

func TestACleanUpThatFailsDoesNotMakeTheLiveConfigurationFailed(t *testing.T) {
	f := newFixture(t)
	f.backends[cache].Fail("release", errors.New("device or resource busy"))
	f.mustConfigure(t, strings.ReplaceAll(files, "defaultClass: bronze", "defaultClass: silver"))
	if status := f.Status(); status.Config.Err != nil || status.Resources[0].DefaultClass != "silver" {
		t.Errorf("status says %v, default class %q", status.Config.Err, status.Resources[0].DefaultClass)
	}
}

func TestANewResourceOfARefusedConfigurationIsTakenBack(t *testing.T) {
	f := newFixture(t)
	f.restart(t)
	f.backends[cache] = nodetest.NewBackend()
	f.backends[disk].Fail("apply", errors.New("no such device"))
	if err := f.configure(t, files); err == nil {
		t.Fatal("no error")
	}
	if live, _ := f.backends[cache].Live(); len(live) > 0 {
		t.Errorf("classes %v stay applied", live)
	}
}

func TestAResourceThatIsGoneIsTakenBack(t *testing.T) {
	f := newFixture(t)
	f.mustConfigure(t, fewer)
	if live, _ := f.backends[disk].Live(); len(live) > 0 {
		t.Errorf("classes %v stay applied", live)
	}
}

func TestTheSameErrorIsToldOnce(t *testing.T) {
	f := newFixture(t)
	f.backends[cache].Fail("apply", errors.New("no room"))
	if err := f.configure(t, files); err == nil {
		t.Fatal("no error")
	}
	changed, failed := f.Changed(), f.Status().Config.Failed
	if err := f.configure(t, files); err == nil {
		t.Fatal("no error")
	}
	select {
	case <-changed:
		t.Error("told again")
	default:
	}
	if now := f.Status().Config.Failed; !now.Equal(failed) {
		t.Errorf("failed at %s, and then at %s", failed, now)
	}
}
