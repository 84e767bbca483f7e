// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"errors"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// TestASubPathOfALocalVolumeIsNotASharedDisk uses a local volume: a filesystem that the host has mounted, and that the
// kubelet mounts again for a pod, before it mounts the subPath. The disk is not shared if the kubelet has mounted the
// whole filesystem for this pod. The disk of the node's root is always shared.
func TestASubPathOfALocalVolumeIsNotASharedDisk(t *testing.T) {
	const (
		local   = "60 1 8:16 / /mnt/disks/vol1 rw - ext4 /dev/sdb rw"
		ofPod   = "61 1 8:16 / /var/lib/kubelet/pods/1/volumes/kubernetes.io~local-volume/vol rw - ext4 /dev/sdb rw"
		ofOther = "61 1 8:16 / /var/lib/kubelet/pods/2/volumes/kubernetes.io~local-volume/vol rw - ext4 /dev/sdb rw"
		subPath = "62 1 8:16 /sub /var/lib/kubelet/pods/1/volume-subpaths/vol/main/0 rw - ext4 /dev/sdb rw"
		root    = "61 1 8:1 / /var/lib/kubelet/pods/1/volumes/kubernetes.io~local-volume/vol rw - ext4 /dev/sda1 rw"
		onSDB   = "50 40 8:16 /sub /data rw - ext4 /dev/sdb rw"
	)

	for _, test := range []struct {
		name, mount string
		host        []string
		want        string
	}{
		{"a subPath of a local volume", onSDB, []string{local, ofPod, subPath}, ""},
		{"a local volume", strings.Replace(onSDB, "/sub", "/", 1), []string{local, ofPod}, ""},
		{"a directory of a filesystem of the node", onSDB, []string{local}, "also contains the node's mount /mnt/disks/vol1"},
		{"a directory of the local volume of another pod", onSDB, []string{local, ofOther}, "also contains the node's mount /mnt/disks/vol1"},
		{"a subPath of a local volume that is the node's root", "50 40 8:1 /sub /data rw - ext4 /dev/sda1 rw", []string{root}, "also contains the node's mount /"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := withMounts(test.mount)
			for _, line := range test.host {
				m.Mount(line)
			}
			err := newVolumes(t, m).start(10, "/data", "silver")
			if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, classes.ErrSharedDisk) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
