// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"errors"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
)

// TestTheLimitedDiskIsThatOfTheKubeletsMount has a line of the container's mountinfo, the directory in which the kubelet
// has mounted the volume, and a line of the node's mountinfo. If the node has no mount at this directory, the container's mount
// decides.
func TestTheLimitedDiskIsThatOfTheKubeletsMount(t *testing.T) {
	const (
		dir       = "/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/pv/mount"
		subPath   = "/var/lib/kubelet/pods/1/volume-subpaths/pv/main/0"
		onSDB     = "61 1 8:16 / " + dir + " rw - ext4 /dev/sdb rw"
		ofSubPath = "62 1 8:16 /sub " + subPath + " rw - ext4 /dev/sdb rw"
		ofOther   = "61 1 8:16 / /var/lib/kubelet/pods/2/volumes/kubernetes.io~csi/pv/mount rw - ext4 /dev/sdb rw"
	)

	for _, test := range []struct{ name, ofContainer, dir, ofNode, want string }{
		{"a symbolic link in the image changes the path", "50 40 8:16 / /link/target rw - ext4 /dev/sdb rw", dir, onSDB, "8:16 "},
		{"a subPath behind a symbolic link", "50 40 8:16 /sub /link/target rw - ext4 /dev/sdb rw", subPath, ofSubPath, "8:16 "},
		{"the container hides the mount", "50 40 0:9 / /data rw - tmpfs tmpfs rw", dir, onSDB, "8:16 "},
		{"the container has another disk there", "50 40 7:0 / /data rw - ext4 /dev/loop0 rw", dir, onSDB, "8:16 "},
		{"the kubelet has unmounted the volume", "50 40 8:16 / /data rw - ext4 /dev/sdb rw", dir, "", "8:16 "},
		{"a mount of another pod", "50 40 7:0 / /data rw - ext4 /dev/loop0 rw", dir, ofOther, "7:0 "},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := withMounts(test.ofContainer)
			if test.ofNode != "" {
				m.Mount(test.ofNode)
			}
			v := newVolumes(t, m)
			target := v.hold(10, "/data", "silver")
			target.VolumeSources = map[string]classes.VolumeSource{"/data": {Dir: test.dir}}
			must(t, v.volume.Enforce(t.Context(), target, "silver", "silver"))
			v.want(podMax, test.want+silverLimits)
		})
	}
}

// TestAVolumeOfAContainerWhosePIDIsUnknownIsFoundWithoutTheContainersMounts covers CRI-O before 1.36, which reports no PIDs,
// and containerd, which reports no PID if the container's shim does not answer. Only a hostPath volume needs the PID.
func TestAVolumeOfAContainerWhosePIDIsUnknownIsFoundWithoutTheContainersMounts(t *testing.T) {
	const dir = "/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/pv/mount"
	for name, test := range map[string]struct {
		source classes.VolumeSource
		want   string
	}{
		"the kubelet has mounted it": {classes.VolumeSource{Dir: dir}, "8:16 " + silverLimits},
		"it is a block device":       {classes.VolumeSource{Device: "7:0"}, "7:0 " + silverLimits},
		"it is a hostPath":           {classes.VolumeSource{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := withMounts()
			m.Mount("61 1 8:16 / " + dir + " rw - ext4 /dev/sdb rw")
			v := newVolumes(t, m)
			target := v.hold(0, "/data", "silver")
			target.VolumeSources = map[string]classes.VolumeSource{"/data": test.source}
			if err := v.volume.Enforce(t.Context(), target, "silver", "silver"); (err == nil) != (test.want != "") || err != nil && !errors.Is(err, iodisks.ErrNoPID) {
				t.Errorf("got %v", err)
			}
			v.want(podMax, test.want)
			if seen, err := v.volume.Observe(t.Context(), target, "silver"); err != nil || (seen.Class == "silver") != (test.want != "") {
				t.Errorf("observed %+v, %v", seen, err)
			}
		})
	}
}
