// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node/claims"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

const (
	volumeIO    = "test.example/volume"
	volumeFiles = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: test.example/cache
  classes: [{name: gold}]
  test: {names: [gold]}
- name: test.example/volume
  scope: volume
  classes: [{name: gold}, {name: rare, capacity: 1}]
  test: {names: [gold, rare]}
`
)

// newVolumeFixture returns a node with classes for containers and for volumes, and the backend for volumes.
func newVolumeFixture(t *testing.T) (*fixture, *nodetest.Backend) {
	t.Helper()
	backends := map[string]*nodetest.Backend{cache: nodetest.NewBackend(), volumeIO: nodetest.NewBackend()}
	f := newFixtureOf(t, nodetest.Kind("test", []classes.Scope{classes.ContainerScope, classes.VolumeScope}, backends))
	f.restart(t)
	f.mustConfigure(t, volumeFiles)
	return f, backends[volumeIO]
}

// withVolumes returns a container of a pod that requests classes for the volumes of the container.
func withVolumes(id, request string) classes.Holder {
	return in(pod("p-"+id, map[string]string{classes.VolumeKeyPrefix + "main": request}), container(id))
}

// TestAContainerThatWasCreatedBeforeDoesNotStartWithAVolumeOfUnknownClass has a container that was created before the plugin was connected.
func TestAContainerThatWasCreatedBeforeDoesNotStartWithAVolumeOfUnknownClass(t *testing.T) {
	f, _ := newVolumeFixture(t)
	c := withVolumes("c1", "/data=lead")
	f.Synchronize(nil, []state.Existing{{Holder: c}})
	if _, err := f.StartContainer(c); !errors.Is(err, classes.ErrUnknownClass) {
		t.Errorf("the start returned %v", err)
	}
}

// TestVolumesOfARefusedStartAreEnforcedIfTheContainerRuns uses a container that continues to run although its start was
// refused. Kill does not end it.
func TestVolumesOfARefusedStartAreEnforcedIfTheContainerRuns(t *testing.T) {
	f, volumes := newVolumeFixture(t)
	c := withVolumes("c1", "/data=gold")
	c.PID = 1
	c.PodAnnotations[classes.ContainerKeyPrefix+"main"] = "test.example/cache=lead"
	f.Synchronize(nil, nil)
	if _, err := f.StartContainer(c); !errors.Is(err, classes.ErrUnknownClass) {
		t.Fatalf("the start returned %v", err)
	}
	if err := f.Kill(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	f.Reconcile(t.Context())
	if diff := cmp.Diff(map[string]string{"c1:/data": "gold"}, volumes.Enforced()); diff != "" {
		t.Errorf("classes of volumes (-want +got):\n%s", diff)
	}
}

func TestARefusedContainerFreesTheSlotsOfItsOtherVolumes(t *testing.T) {
	f, _ := newVolumeFixture(t)
	f.Synchronize(nil, nil)
	if _, err := f.StartContainer(withVolumes("c1", "/a=rare,/b=lead")); !errors.Is(err, classes.ErrUnknownClass) {
		t.Errorf("the start returned %v", err)
	}
	if got := nodetest.InUse(f.Status(), volumeIO, "rare"); got != 0 {
		t.Errorf("%d slots of rare are in use, want none", got)
	}
}

// newClaimFixture returns a node with classes for volumes and for claims, and the backends.
func newClaimFixture(t *testing.T) (*fixture, map[string]*nodetest.Backend) {
	t.Helper()
	backends := map[string]*nodetest.Backend{volumeIO: nodetest.NewBackend(), classes.ClaimResource: nodetest.NewBackend()}
	f := newFixtureOf(t, nodetest.Kind("test", []classes.Scope{classes.VolumeScope}, backends))
	ofClaims := nodetest.Kind("volumeio", []classes.Scope{classes.VolumeScope}, backends)
	ofClaims.Claims = nodetest.ClaimedClasses()
	f.kinds = append(f.kinds, ofClaims)
	f.restart(t)
	_, text, _ := strings.Cut(volumeFiles, "- name: test.example/volume")
	f.mustConfigure(t, "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n- name: test.example/volume"+text)
	return f, backends
}

// TestAContainerGetsItsRequestedClassesAlthoughThatOfItsClaimFails uses a claim whose class cannot be enforced. The
// container starts, keeps the other classes of its volumes, and the class of the claim is reported as refused.
func TestAContainerGetsItsRequestedClassesAlthoughThatOfItsClaimFails(t *testing.T) {
	f, backends := newClaimFixture(t)
	c := withVolumes("c1", "/data=gold,/other=gold")
	owner := c.Subject()
	owner.Volume = "/data"
	claimed := claims.Claims{
		Limits:  map[string]qos.VolumeLimits{"slow": {MaxReadBps: 2}},
		Volumes: []classes.ClaimedVolume{{Subject: owner, Claim: "db/data", Class: "slow"}},
	}

	if err := f.SetClaims(t.Context(), claimed); err != nil {
		t.Fatal(err)
	}

	f.Synchronize(nil, nil)

	backends[classes.ClaimResource].Fail("enforce slow", errors.New("no such device"))
	want := map[string]string{"c1:/data": "gold", "c1:/other": "gold"}
	wantVolumesInClassAndClaimRefused := func(when string) {
		t.Helper()
		if diff := cmp.Diff(want, backends[volumeIO].Enforced()); diff != "" {
			t.Errorf("%s: classes of volumes (-want +got):\n%s", when, diff)
		}
		if refused := f.Refused(); len(refused) != 1 || refused[0].Subject != owner {
			t.Errorf("%s: refusals are %+v", when, refused)
		}
	}

	if _, _, err := f.CreateContainer(c); err != nil {
		t.Fatal(err)
	}

	c.PID = 1
	if err := finish(t)(f.StartContainer(c)); err != nil {
		t.Errorf("the start returned %v", err)
	}

	wantVolumesInClassAndClaimRefused("after the start")

	backends[volumeIO].Lose("c1:/data")
	f.Repair(t.Context())
	wantVolumesInClassAndClaimRefused("after a repair")
}

// TestAVolumeHasItsClassOnlyIfTheNewLimitsAreInForce changes the limits of a class while reads from the kernel fail.
func TestAVolumeHasItsClassOnlyIfTheNewLimitsAreInForce(t *testing.T) {
	f, backends := newClaimFixture(t)
	claimed := claims.Claims{
		Volumes: []classes.ClaimedVolume{{Subject: qos.Subject{PodUID: "uid-p-c1", Container: "main", Volume: "/data"}, Claim: "db/data", Class: "slow"}},
	}

	set := func(limit int64) {
		t.Helper()
		claimed.Limits = map[string]qos.VolumeLimits{"slow": {MaxReadBps: limit}}
		if err := f.SetClaims(t.Context(), claimed); err != nil {
			t.Fatal(err)
		}
	}

	set(2)
	f.Synchronize(nil, nil)
	f.mustRun(t, pod("p-c1", nil), container("c1"))
	wantClaimed := func(when, want string, refusals int) {
		t.Helper()
		volumes, reported := f.Assignments()[0].Containers[0].Volumes, false
		for _, a := range volumes[0].Assignments {
			if a.Resource != classes.ClaimResource {
				continue
			}
			if reported = true; a.Class != want {
				t.Errorf("%s: the volume is reported with class %q, want %q", when, a.Class, want)
			}
		}
		if !reported {
			t.Errorf("%s: no class of the claim is reported, want %q", when, want)
		}
		if got := f.Refused(); len(got) != refusals {
			t.Errorf("%s: refusals are %+v", when, got)
		}
	}

	wantClaimed("at first", "slow", 0)

	backends[classes.ClaimResource].Fail("observe", errors.New("input/output error"))
	set(2)
	wantClaimed("after the same claims again", "slow", 0)
	set(3)
	wantClaimed("while the kernel cannot be read", classes.SystemDefault, 1)
	backends[classes.ClaimResource].Fail("observe", nil)
	f.Repair(t.Context())
	wantClaimed("after a repair", "slow", 0)
}

// TestTheLimitsOfAClaimAreReportedAlthoughARequestOfItsVolumeIsRefused has two volumes that request class rare of capacity 1, and that
// have a claim each. Both containers ran before the plugin was started.
func TestTheLimitsOfAClaimAreReportedAlthoughARequestOfItsVolumeIsRefused(t *testing.T) {
	f, _ := newClaimFixture(t)
	claimed := claims.Claims{Limits: map[string]qos.VolumeLimits{"slow": {MaxReadBps: 2}}}
	var exist []state.Existing
	for _, id := range []string{"c1", "c2"} {
		c := withVolumes(id, "/data=rare")
		c.PID = 1
		exist = append(exist, state.Existing{Holder: c, Started: true})
		volume := c.Subject()
		volume.Volume = "/data"
		claimed.Volumes = append(claimed.Volumes, classes.ClaimedVolume{Subject: volume, Claim: "db/" + id, Class: "slow"})
	}
	f.Synchronize(nil, exist)
	if err := f.SetClaims(t.Context(), claimed); err != nil {
		t.Fatal(err)
	}
	if got := len(f.Refused()); got != 1 {
		t.Errorf("%d volumes are refused, want 1", got)
	}
	for _, p := range f.Assignments() {
		if volume := p.Containers[0].Volumes[0]; volume.InForce.IsZero() {
			t.Errorf("no limits of %s are reported as in force: %+v", p.Containers[0].ID, volume.Assignments)
		}
	}
}
