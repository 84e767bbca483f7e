// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"strings"
	"testing"
)

// moved is the host's mount of a subPath of an emptyDir. The container, which also mounts the whole emptyDir, has moved the directory below 80
// directories whose names have 255 blanks. The kernel shows the present path of the directory, with four bytes for each blank.
func moved() string {
	return "900 28 8:1 /var/lib/kubelet/pods/2/volumes/kubernetes.io~empty-dir/v" + strings.Repeat("/"+strings.Repeat(`\040`, 255), 80) +
		"/a /var/lib/kubelet/pods/2/volume-subpaths/v/main/1 rw - ext4 /dev/sda1 rw"
}

func TestALongMountOfAPodDoesNotPreventTheStartOfAnotherPod(t *testing.T) {
	m := withMounts("50 40 8:16 / /data rw - ext4 /dev/sdb rw")
	v := newVolumes(t, m)
	m.Mount(moved())
	if err := v.start(10, "/data", "silver"); err != nil {
		t.Errorf("the start of another pod's container: %.300v", err)
	}
	v.want(podMax, "8:16 "+silverLimits)
}
