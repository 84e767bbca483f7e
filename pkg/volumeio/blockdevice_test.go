// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

func TestABlockDeviceIsLimitedOrRefused(t *testing.T) {
	const ofNode = "also contains the node's mount /"
	for _, test := range []struct {
		name, device string
		mount        string // a further mount of the node, if any
		class        string
		want         string // io.max of the pod or, if the volume is refused, a part of the error
		refused      error
	}{
		{"a loop device", "7:0", "", "silver", "7:0 " + silverLimits, nil},
		{"a partition of a disk", "8:17", "", "silver", "8:16 " + silverLimits, nil},
		{"a device that another pod has mounted", "7:0", "61 1 7:0 / /var/lib/kubelet/pods/2/volumes/kubernetes.io~csi/pv/mount rw - ext4 /dev/loop0 rw", "silver", "7:0 " + silverLimits, nil},
		{"a device that the node has mounted", "7:0", "61 1 7:0 / /srv rw - ext4 /dev/loop0 rw", "silver", ofNode + "srv", classes.ErrSharedDisk},
		{"a partition of the node's disk", "8:1", "", "silver", ofNode, classes.ErrSharedDisk},
		{"the node's disk, with a class for shared disks", "8:0", "", "any", "8:0 rbps=1000000 wbps=max riops=max wiops=max\n", nil},
		{"a device that is gone", "7:9", "", "silver", "device 7:9 is not in /sys/dev/block", fs.ErrNotExist},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := withMounts("49 40 8:1 / /data rw - ext4 /dev/sda1 rw")
			m.AddPartition("sdb", "sdb1", 8, 17)
			if test.mount != "" {
				m.Mount(test.mount)
			}

			v := newVolumes(t, m)
			target := v.hold(10, "/dev/data", test.class)
			target.VolumeSources = map[string]classes.VolumeSource{"/dev/data": {Device: test.device}}
			err := v.volume.Enforce(t.Context(), target, test.class, test.class)
			if test.refused != nil {
				if !errors.Is(err, test.refused) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want %q", err, test.want)
				}
				v.want(podMax, "")
				return
			}
			must(t, err)

			v.want(podMax, test.want)
			if seen, err := v.volume.Observe(t.Context(), target, test.class); err != nil || seen.Class != test.class {
				t.Errorf("observed %+v, %v, want the class %q", seen, err, test.class)
			}
		})
	}
}

func TestABlockDeviceOfAProcessThatEndedIsNotObserved(t *testing.T) {
	v := newVolumes(t, withMounts())
	target := v.hold(99, "/dev/data", "silver")
	target.VolumeSources = map[string]classes.VolumeSource{"/dev/data": {Device: "7:0"}}
	if _, err := v.volume.Observe(t.Context(), target, "silver"); !errors.Is(err, classes.ErrEnded) {
		t.Errorf("got %v, want ErrEnded", err)
	}
}
