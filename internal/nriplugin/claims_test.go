// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node/claims"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// These are contents of io.max.
const (
	limitOf     = "254:16 rbps=%d wbps=max riops=max wiops=max"       // with one limit of reads
	fromClaim   = "254:16 rbps=15000000 wbps=max riops=max wiops=700" // with the class gold of claimClasses
	lowerOfBoth = "254:16 rbps=10000000 wbps=max riops=max wiops=700" // with this class and the class silver of the class file
)

// claim requests a class for the volume /data of a container of pod a.
func claim(class string) []classes.ClaimedVolume {
	owner := qos.Subject{PodUID: "uid-a", Container: "main", Volume: "/data"}
	return []classes.ClaimedVolume{{Subject: owner, Claim: "db/data-0", Class: class}}
}

// claimClasses returns the classes that claims can have. The class file also defines a class gold, with other limits.
func claimClasses() map[string]qos.VolumeLimits {
	return map[string]qos.VolumeLimits{"gold": {MaxReadBps: 15_000_000, MaxWriteIops: 700}, "bronze": {MaxReadBps: 5_000_000}}
}

// newClaimedRig returns a rig on which a claim requests a class for the volume of pod a.
func newClaimedRig(t *testing.T, class string) *volumeRig {
	t.Helper()
	r := newVolumeRig(t)
	r.setClaims(t, claims.Claims{Limits: claimClasses(), Volumes: claim(class)})
	return r
}

func (r *volumeRig) setClaims(t *testing.T, claimed claims.Claims) {
	t.Helper()
	must(t, r.node.SetClaims(t.Context(), claimed))
}

// wantClaimed checks the class that the only volume of a container gets from its claim, and the volume's device.
func (r *volumeRig) wantClaimed(t *testing.T, id, class, device string) {
	t.Helper()
	for _, pod := range r.node.Assignments() {
		for _, ctr := range pod.Containers {
			for _, v := range ctr.Volumes {
				for _, a := range v.Assignments {
					if ctr.ID != id || a.Resource != classes.ClaimResource {
						continue
					}
					if a.Class != class || v.Device != device {
						t.Errorf("the volume has class %q on device %q, want %q on %q", a.Class, v.Device, class, device)
					}
					return
				}
			}
		}
	}

	if class != "" {
		t.Errorf("the volume of %s is not reported", id)
	}
}

// TestTheClassOfAClaimIsInForceBeforeTheFirstInstruction: a created container has no limits yet. The plugin sets them in its hook
// StartContainer, which ends before the runtime starts the process.
func TestTheClassOfAClaimIsInForceBeforeTheFirstInstruction(t *testing.T) {
	r := newClaimedRig(t, "gold")
	id, err := r.create(t, r.podOf(t, "a", ""), onVdb)
	must(t, err)
	r.wantPodLimits(t, id, "")
	must(t, r.StartContainer(t.Context(), id))
	r.wantPodLimits(t, id, fromClaim)
	r.wantClaimed(t, id, "gold", "254:16")
}

func TestTheClassOfAClaimChangesWhileTheContainerRuns(t *testing.T) {
	r := newVolumeRig(t)
	id := r.mustRunWith(t, r.podOf(t, "a", ""), onVdb)
	r.wantPodLimits(t, id, "")

	all := claimClasses()
	r.setClaims(t, claims.Claims{Limits: all, Volumes: claim("gold")})
	r.wantPodLimits(t, id, fromClaim)
	r.wantClaimed(t, id, "gold", "254:16")

	r.setClaims(t, claims.Claims{Limits: all, Volumes: claim("bronze")})
	r.wantPodLimits(t, id, fmt.Sprintf(limitOf, 5000000))
	r.wantClaimed(t, id, "bronze", "254:16")

	// the class of the claim gets another limit
	all["bronze"] = qos.VolumeLimits{MaxReadBps: 6_000_000}
	r.setClaims(t, claims.Claims{Limits: all, Volumes: claim("bronze")})
	r.wantPodLimits(t, id, fmt.Sprintf(limitOf, 6000000))

	// a change of the class file does not change the classes of claims
	r.mustConfigure(t, strings.Replace(volumeFiles, "maxReadBps: 10M", "maxReadBps: 9M", 1))
	r.wantPodLimits(t, id, fmt.Sprintf(limitOf, 6000000))
	r.wantClaimed(t, id, "bronze", "254:16")

	// no claim is left: the limits end with the next repair, and the resource is not offered any more
	r.setClaims(t, claims.Claims{})
	r.wantClaimed(t, id, "", "")
	r.node.Repair(t.Context())
	r.wantPodLimits(t, id, "")
	for _, resource := range r.node.Status().Resources {
		if resource.Name == classes.ClaimResource {
			t.Error("the resource of claims is still offered")
		}
	}
}

func TestAVolumeWithAnAnnotationAndAClaimHasTheLowerLimitsWhileItHasBoth(t *testing.T) {
	r := newClaimedRig(t, "gold")
	id := r.mustRunWith(t, r.podOf(t, "a", "/data=silver"), onVdb)
	// silver reads 10 MB/s at most. gold reads 15 MB/s at most, and makes 700 writes/s at most.
	r.wantPodLimits(t, id, lowerOfBoth)
	r.wantClaimed(t, id, "gold", "254:16")

	// bronze reads 5 MB/s at most
	r.setClaims(t, claims.Claims{Limits: claimClasses(), Volumes: claim("bronze")})
	r.wantPodLimits(t, id, fmt.Sprintf(limitOf, 5000000))

	// without the claim, the volume has the limits of the annotation
	r.setClaims(t, claims.Claims{})
	r.wantPodLimits(t, id, silver)
	r.wantVolumes(t, id, "/data=silver on 254:16")
}

func TestLimitsOfAClaimAndAnAnnotationEndWithTheContainer(t *testing.T) {
	r := newClaimedRig(t, "gold")
	id := r.mustRunWith(t, r.podOf(t, "a", "/data=silver"), onVdb)
	r.wantPodLimits(t, id, lowerOfBoth)
	r.mustStop(t, id)
	r.node.Repair(t.Context())
	r.wantPodLimits(t, id, "")
}

func TestAContainerStartsThoughTheClassOfItsClaimCannotBeEnforcedAndGetsItLater(t *testing.T) {
	r := newClaimedRig(t, "gold")
	id := r.mustRunWith(t, r.podOf(t, "a", ""), onTmpfs)
	r.wantClaimed(t, id, "", "")
	refused := r.node.Refused()
	if len(refused) != 1 || refused[0].Reason != "NoBlockDevice" || refused[0].Subject.Volume != "/data" {
		t.Fatalf("refusals are %+v, want NoBlockDevice for /data", refused)
	}

	r.host.Cgroups().AddFile("/proc/1001/mountinfo", onVdb+"\n") // the container, whose PID is 1001, now has the volume on a disk
	r.node.Repair(t.Context())
	r.wantPodLimits(t, id, fromClaim)
	r.wantClaimed(t, id, "gold", "254:16")
	if refused := r.node.Refused(); len(refused) > 0 {
		t.Errorf("after the repair, the refusals are %+v, want none", refused)
	}
}

func TestInvalidClassesOfClaimsChangeNothing(t *testing.T) {
	r := newClaimedRig(t, "gold")
	id := r.mustRunWith(t, r.podOf(t, "a", ""), onVdb)
	err := r.node.SetClaims(t.Context(), claims.Claims{Limits: map[string]qos.VolumeLimits{"one": {MaxReadBps: 1}}, Volumes: claim("one")})
	if !errors.Is(err, classes.ErrBadRequest) || !strings.Contains(err.Error(), `"1" is too small; the minimum is 2`) {
		t.Errorf("the error is %v, want ErrBadRequest with the minimum", err)
	}
	r.wantPodLimits(t, id, fromClaim)
}

func TestAClaimWithAClassThatDoesNotExistChangesNothing(t *testing.T) {
	r := newClaimedRig(t, "lead")
	id := r.mustRunWith(t, r.podOf(t, "a", "/data=silver"), onVdb)
	r.wantPodLimits(t, id, silver)
}

// TestAVolumeWhoseClaimHasAMissingClassIsNotReported requests class lead, which is not a class of claimClasses.
func TestAVolumeWhoseClaimHasAMissingClassIsNotReported(t *testing.T) {
	r := newClaimedRig(t, "lead")
	id := r.mustRunWith(t, r.podOf(t, "a", ""), onVdb)
	r.wantVolumes(t, id, "")
}

func TestTheClassOfAClaimNeedsNoClassFileWithVolumeClasses(t *testing.T) {
	r := newClaimedRig(t, "gold")
	id := r.mustRunWith(t, r.podOf(t, "a", ""), onVdb)
	r.mustConfigure(t, machineFiles) // these have no classes of volumes
	r.wantPodLimits(t, id, fromClaim)
	r.wantClaimed(t, id, "gold", "254:16")
}

func TestAChangeOfClaimsKeepsTheErrorOfTheClassFiles(t *testing.T) {
	r := newVolumeRig(t)
	if err := r.configure(t, "nonsense"); err == nil {
		t.Fatal("no error")
	}

	before := r.node.Status().Config
	r.setClaims(t, claims.Claims{Limits: claimClasses(), Volumes: claim("gold")})
	after := r.node.Status()
	if after.Config.Err == nil || !after.Config.Failed.Equal(before.Failed) || !after.Config.Loaded.Equal(before.Loaded) ||
		after.Config.Generation != before.Generation || after.Config.Hash != before.Hash {
		t.Errorf("the claims have changed the status of the class files: it is %+v, and was %+v", after.Config, before)
	}

	// the claims are in force nevertheless
	if i := len(after.Resources) - 1; after.Resources[i].Name != classes.ClaimResource {
		t.Errorf("the resource of claims is not offered: %+v", after.Resources[i].Name)
	}
}

// TestAnAdoptedContainerHasTheClassOfItsClaimThoughItsAnnotationIsInvalid: the plugin would refuse to create such a container, so the
// container starts without the plugin.
func TestAnAdoptedContainerHasTheClassOfItsClaimThoughItsAnnotationIsInvalid(t *testing.T) {
	for _, test := range []struct{ name, annotation, files string }{
		{"a class that does not exist", "/data=silver", machineFiles},
		{"a malformed request", "data=silver", volumeFiles},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newVolumeRig(t)
			r.stop()
			id := r.mustRunWith(t, r.podOf(t, "a", test.annotation), onVdb)
			r.startNewWith(t, test.files)
			r.setClaims(t, claims.Claims{Limits: claimClasses(), Volumes: claim("gold")})
			r.wantPodLimits(t, id, fromClaim)

			// the plugin registers again, and adopts the container once more
			r.restartRuntime(t)
			r.node.Repair(t.Context())
			r.wantPodLimits(t, id, fromClaim)
			r.wantClaimed(t, id, "gold", "254:16")
		})
	}
}

// TestLimitsEndWithTheLastClaimThoughThePluginRegistersAgain uses class files that define classes of containers only.
func TestLimitsEndWithTheLastClaimThoughThePluginRegistersAgain(t *testing.T) {
	r := newClaimedRig(t, "gold")
	r.mustConfigure(t, machineFiles)
	id := r.mustRunWith(t, r.podOf(t, "a", ""), onVdb)
	r.wantPodLimits(t, id, fromClaim)

	r.setClaims(t, claims.Claims{})
	r.restartRuntime(t)
	r.node.Repair(t.Context())
	r.wantPodLimits(t, id, "")
}

// TestClaimsSurviveARestartOfThePlugin starts a new process of the plugin, which gets no claims before the container of pod b starts.
func TestClaimsSurviveARestartOfThePlugin(t *testing.T) {
	r := newVolumeRig(t)
	r.setClaims(t, claims.Claims{Limits: claimClasses(), Volumes: append(claim("gold"), claimOf("b")...)})
	// pod a has silver by its annotation and gold by its claim
	running := r.mustRunWith(t, r.podOf(t, "a", "/data=silver"), onVdb)
	r.wantPodLimits(t, running, lowerOfBoth)

	r.startNewWith(t, volumeFiles)
	r.node.Repair(t.Context())
	r.wantPodLimits(t, running, lowerOfBoth)
	r.wantClaimed(t, running, "gold", "254:16")
	started := r.mustRunWith(t, r.podOf(t, "b", ""), onVdb)
	r.wantPodLimits(t, started, fromClaim)

	// the claim of pod a ends, so only silver is left
	r.setClaims(t, claims.Claims{Limits: claimClasses(), Volumes: claimOf("b")})
	r.node.Repair(t.Context())
	r.wantPodLimits(t, running, silver)
	r.wantPodLimits(t, started, fromClaim)
}

// TestALinkInTheImageDoesNotEvadeTheLimitsOfAClaim runs a container whose image has a symbolic link from /data to /elsewhere. Its
// mountinfo then lacks /data, and the plugin finds the disk by the source of the mount in mountinfo of the host.
func TestALinkInTheImageDoesNotEvadeTheLimitsOfAClaim(t *testing.T) {
	const dir = "/var/lib/kubelet/pods/uid-a/volumes/kubernetes.io~csi/pv/mount"
	r := newClaimedRig(t, "gold")
	r.host.Cgroups().Mount("61 1 254:16 / " + dir + " rw - ext4 /dev/vdb rw")
	r.mounts = []*api.Mount{{Destination: "/data/", Source: dir}, {Destination: "/etc/hosts", Source: "/var/lib/kubelet/pods/uid-a/etc-hosts"}}
	id := r.mustRunWith(t, r.podOf(t, "a", ""), "50 40 254:16 / /elsewhere rw - ext4 /dev/vdb rw")
	r.wantPodLimits(t, id, fromClaim)
	r.wantClaimed(t, id, "gold", "254:16")

	// a new process of the plugin finds the disk, too
	r.startNewWith(t, volumeFiles)
	r.setClaims(t, claims.Claims{Limits: claimClasses(), Volumes: claim("bronze")})
	r.wantPodLimits(t, id, fmt.Sprintf(limitOf, 5000000))
}

// TestTheVolumeThatHidesAnotherIsLimited mounts two directories at /data/ and /data, which are the same path, so the second one
// hides the first one. The limits of the claim for /data apply to the disk of the second one, which is vdb in each case.
func TestTheVolumeThatHidesAnotherIsLimited(t *testing.T) {
	const volumes = "/var/lib/kubelet/pods/uid-a/volumes/kubernetes.io~csi/"
	for name, sources := range map[string][]string{
		"a volume hides a volume":   {volumes + "other/mount", volumes + "pv/mount"},
		"a hostPath hides a volume": {volumes + "other/mount", "/srv"},
		"a volume hides a hostPath": {"/srv", volumes + "pv/mount"},
		"a volume hides itself":     {volumes + "pv/mount", volumes + "pv/mount"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newClaimedRig(t, "gold") // the host has mounted pv from vdb, other from vda, and nothing at /srv
			r.host.Cgroups().Mount("61 1 254:16 / " + volumes + "pv/mount rw - ext4 /dev/vdb rw")
			r.host.Cgroups().Mount("62 1 254:0 / " + volumes + "other/mount rw - ext4 /dev/vda rw")
			r.mounts = []*api.Mount{{Destination: "/data/", Source: sources[0]}, {Destination: "/data", Source: sources[1]}}
			id := r.mustRunWith(t, r.podOf(t, "a", ""), onVdb) // the container's mountinfo shows vdb at /data
			r.wantClaimed(t, id, "gold", "254:16")
		})
	}
}

// claimOf requests class gold for the volume /data of a container of another pod.
func claimOf(pod string) []classes.ClaimedVolume {
	volumes := claim("gold")
	volumes[0].PodUID = "uid-" + pod
	return volumes
}
