// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

const (
	volumeFiles = machineFiles + `
- name: qos.noderesource.dev/volume-io
  scope: volume
  classes: [{name: silver, capacity: 2}, {name: gold}]
  volumeio: {classes: {silver: {maxReadBps: 10M}, gold: {maxReadBps: 20M}}}
`
	onVdb   = "50 40 254:16 / /data rw - ext4 /dev/vdb rw"
	onTmpfs = "50 40 0:50 / /data rw - tmpfs tmpfs rw"
	silver  = "254:16 rbps=10000000 wbps=max riops=max wiops=max"
)

// volumeRig is a machine whose containers have volumes.
type volumeRig struct {
	*machineRig
	// created counts the containers. The rig computes the PID of a container from this count, as the simulated machine does.
	created int
	// The runtime lists the mounts and the devices in its requests about containers.
	mounts  []*api.Mount
	devices []*api.LinuxDevice
}

func newVolumeRig(t *testing.T) *volumeRig {
	t.Helper()
	cgroups := simcgroup.New()
	cgroups.Mount("28 1 254:0 / / rw - ext4 /dev/vda rw")
	r := &volumeRig{machineRig: newMachineRigOn(t, newMachine(cgroups), volumeFiles, nriruntime.Options{})}
	r.world.Expect.Volumes = map[string]map[string]uint64{"silver": {"rbps": 10_000_000}, "gold": {"rbps": 20_000_000}}
	return r
}

// podOf runs a pod that requests classes for the volumes of its container.
func (r *volumeRig) podOf(t *testing.T, name, request string) string {
	t.Helper()
	config := nriruntime.PodConfig{
		Name: name, UID: "uid-" + name, Annotations: map[string]string{"volumes.qos.noderesource.dev/main": request},
	}
	id, err := r.RunPod(t.Context(), config)
	if err != nil && strings.Contains(err.Error(), "ttrpc: closed") {
		id, err = r.RunPod(t.Context(), config) // the first call showed the runtime that the plugin had ended
	}
	must(t, err)
	return id
}

// create creates a container with a mount.
func (r *volumeRig) create(t *testing.T, pod, mount string) (string, error) {
	t.Helper()
	id, err := r.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: "main", Mounts: r.mounts, Devices: r.devices})
	if err != nil {
		return "", err
	}
	r.created++
	r.host.Cgroups().AddFile(fmt.Sprintf("/proc/%d/mountinfo", 1000+r.created), mount+"\n")
	return id, nil
}

func (r *volumeRig) mustRunWith(t *testing.T, pod, mount string) string {
	t.Helper()
	id, err := r.create(t, pod, mount)
	if err == nil {
		err = r.StartContainer(t.Context(), id)
	}
	must(t, err)
	return id
}

// wantPodLimits checks io.max of the pod of a container.
func (r *volumeRig) wantPodLimits(t *testing.T, id, want string) {
	t.Helper()
	c := r.container(t, id)
	dir := c.Spec.CgroupsPath[:strings.LastIndex(c.Spec.CgroupsPath, "/")]
	data, err := r.host.ReadFile("/sys/fs/cgroup" + dir + "/io.max")
	if got := strings.TrimSpace(string(data)); err != nil || got != want {
		t.Errorf("io.max of the pod is %q, %v; want %q", got, err, want)
	}
}

// wantVolumes checks the reported volumes of a container, as "path=class" with the device if the limits are in force.
func (r *volumeRig) wantVolumes(t *testing.T, id, want string) {
	t.Helper()
	var got []string
	for _, pod := range r.node.Assignments() {
		for _, ctr := range pod.Containers {
			for _, v := range ctr.Volumes {
				if ctr.ID == id {
					text := v.Path + "=" + v.Assignments[0].Class
					if v.Device != "" {
						text += " on " + v.Device
					}
					got = append(got, text)
				}
			}
		}
	}

	if text := strings.Join(got, ","); text != want {
		t.Errorf("volumes are reported as %q, want %q", text, want)
	}
}

func TestAVolumeIsLimitedWhileItsContainerRuns(t *testing.T) {
	r := newVolumeRig(t)
	var atStart string
	id, err := r.create(t, r.podOf(t, "a", "/data=silver"), onVdb)
	must(t, err)

	r.wantPodLimits(t, id, "")
	r.wantVolumes(t, id, "/data=") // the class is not yet in force
	r.host.intercept(func(op, path string) error {
		atStart += op + " " + path[strings.LastIndex(path, "/"):]
		return nil
	})

	must(t, r.StartContainer(t.Context(), id))

	if atStart != "write /io.max" {
		t.Errorf("the start hook made the changes %q, want one write of io.max", atStart)
	}

	r.wantPodLimits(t, id, silver)
	r.wantVolumes(t, id, "/data=silver on 254:16")
	r.world.Hold(t)
	if since := r.node.Assignments()[0].Containers[0].Volumes[0].InForce; since.IsZero() {
		t.Error("the time at which the limits were put in force is missing")
	}

	r.mustStop(t, id)
	r.wantVolumes(t, id, "")
	r.node.Repair(t.Context())
	r.wantPodLimits(t, id, "")
}

func TestAChangedLimitOfAVolumeIsInForceAndMeasured(t *testing.T) {
	r := newVolumeRig(t)
	id := r.mustRunWith(t, r.podOf(t, "a", "/data=silver"), onVdb)
	r.mustConfigure(t, strings.Replace(volumeFiles, "maxReadBps: 10M", "maxReadBps: 9M", 1))
	r.wantPodLimits(t, id, strings.Replace(silver, "10000000", "9000000", 1))
	r.node.Repair(t.Context())
	if got := r.node.Status().Corrections; len(got) > 0 {
		t.Errorf("a new limit counts as drift: %v", got)
	}

	r.wantMeasured(t, 9000000)
}

// TestABlockDeviceIsLimitedWhileItsContainerRuns uses a volume of mode Block, which is not the first device of its container, and restarts
// the plugin with another limit.
func TestABlockDeviceIsLimitedWhileItsContainerRuns(t *testing.T) {
	r := newVolumeRig(t)
	r.devices = []*api.LinuxDevice{{Path: "/dev/null", Type: "c", Major: 1, Minor: 3}, {Path: "/dev/data", Type: "b", Major: 254, Minor: 16}}
	id := r.mustRunWith(t, r.podOf(t, "a", "/dev/data=silver"), "50 40 0:50 / / rw - overlay overlay rw")
	r.wantPodLimits(t, id, silver)
	r.wantVolumes(t, id, "/dev/data=silver on 254:16")
	r.world.Hold(t)

	r.startNewWith(t, strings.Replace(volumeFiles, "maxReadBps: 10M", "maxReadBps: 9M", 1))
	r.wantPodLimits(t, id, strings.Replace(silver, "10000000", "9000000", 1))
	r.mustStop(t, id)
	r.node.Repair(t.Context())
	r.wantPodLimits(t, id, "")
}

// TestVolumesAreNotLimitedBeforeTheContainerStarts creates a container again after it has ended. The limits of the first container must not
// stay in force until the start of the second one.
func TestVolumesAreNotLimitedBeforeTheContainerStarts(t *testing.T) {
	r := newVolumeRig(t)
	r.devices = []*api.LinuxDevice{{Path: "/dev/data", Type: "b", Major: 254, Minor: 16}}
	const mount = "50 40 0:50 / / rw - overlay overlay rw"
	pod := r.podOf(t, "a", "/dev/data=silver")
	r.mustStop(t, r.mustRunWith(t, pod, mount))
	id, err := r.create(t, pod, mount)
	must(t, err)
	r.node.Repair(t.Context())
	r.wantPodLimits(t, id, "")

	must(t, r.StartContainer(t.Context(), id))
	r.wantPodLimits(t, id, silver)
	r.node.Repair(t.Context())
	r.wantPodLimits(t, id, silver)
}

// TestACharacterDeviceIsNoVolume uses a character device with the numbers of a disk.
func TestACharacterDeviceIsNoVolume(t *testing.T) {
	r := newVolumeRig(t)
	r.devices = []*api.LinuxDevice{{Path: "/dev/data", Type: "c", Major: 254, Minor: 16}}
	id, err := r.create(t, r.podOf(t, "a", "/dev/data=silver"), "50 40 0:50 / / rw - overlay overlay rw")
	if err == nil {
		err = r.StartContainer(t.Context(), id)
	}
	if err == nil || !strings.Contains(err.Error(), "no mount and no device at /dev/data") {
		t.Errorf("start: %v", err)
	}
}

// wantMeasured checks the limit in the usage of the only volume.
func (r *volumeRig) wantMeasured(t *testing.T, readBps float64) {
	t.Helper()
	sample, err := r.node.Usage(t.Context())
	must(t, err)
	var limits []float64
	for _, h := range sample.Holders {
		for series, value := range h.Reading {
			if h.Scope() == classes.VolumeScope && series.Measure == "max_read_bps" {
				limits = append(limits, value)
			}
		}
	}
	if !slices.Equal(limits, []float64{readBps}) {
		t.Errorf("the usage has the limits %v, want %v", limits, readBps)
	}
}

func TestAVolumeThatCannotBeLimitedKeepsItsContainerFromStarting(t *testing.T) {
	r := newVolumeRig(t)
	id, err := r.create(t, r.podOf(t, "a", "/data=silver"), onTmpfs)
	if err == nil {
		err = r.StartContainer(t.Context(), id)
	}

	const want = `pod default/a container main volume /data: class "silver" of qos.noderesource.dev/volume-io: the volume has no block device: /data is on tmpfs`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}

	if refused := r.node.Refused(); len(refused) != 1 || refused[0].Reason != "NoBlockDevice" {
		t.Errorf("refusals are %+v, want one: NoBlockDevice", refused)
	}
}

func TestInvalidRequestsOfVolumesAreRefusedAndTakeNoSlot(t *testing.T) {
	r := newVolumeRig(t)
	for request, want := range map[string]string{
		"/data=none":             `class "none" of qos.noderesource.dev/volume-io does not exist on this node; available: silver, gold`,
		"/data=gold,/other=none": `class "none" of qos.noderesource.dev/volume-io does not exist`, // the slot of gold is freed
		"data=gold":              `the request has "data=gold", which is not of the form /path=class`,
	} {
		if _, err := r.create(t, r.podOf(t, fmt.Sprint("wrong", len(request)), request), onVdb); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", request, err, want)
		}
	}

	if got := nodetest.InUse(r.node.Status(), "qos.noderesource.dev/volume-io", "gold"); got != 0 {
		t.Errorf("containers that were refused occupy %d slots of gold, want none", got)
	}
}

func TestAVolumeThatWasStartedWithoutThePluginIsLimitedOrReported(t *testing.T) {
	r := newVolumeRig(t)
	r.stop()
	limited := r.mustRunWith(t, r.podOf(t, "a", "/data=silver"), onVdb)
	refused := r.mustRunWith(t, r.podOf(t, "b", "/data=silver"), onTmpfs)
	r.startNewWith(t, volumeFiles)
	r.wantPodLimits(t, limited, silver)
	r.wantVolumes(t, limited, "/data=silver on 254:16")
	r.wantVolumes(t, refused, "/data=")
	r.wantRefused(t, "b NoBlockDevice")

	// the volume of the last container is now on a disk
	r.host.Cgroups().AddFile(fmt.Sprintf("/proc/%d/mountinfo", 1000+r.created), onVdb+"\n")
	r.node.Repair(t.Context())
	r.wantVolumes(t, refused, "/data=silver on 254:16")
	r.wantNoneRefused(t)
	r.world.Hold(t)
}

func TestVolumesKeepTheirClassesWhenThePluginRestarts(t *testing.T) {
	r := newVolumeRig(t)
	pod := r.podOf(t, "a", "/data=silver")
	id := r.mustRunWith(t, pod, onVdb)
	r.startNewWith(t, volumeFiles)
	r.wantPodLimits(t, id, silver)
	r.wantVolumes(t, id, "/data=silver on 254:16")

	r.mustRunWith(t, r.podOf(t, "b", "/data=silver"), onVdb)
	_, err := r.create(t, r.podOf(t, "c", "/data=silver"), onVdb)
	if want := `class "silver" of qos.noderesource.dev/volume-io is full: 2 of 2 in use`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
