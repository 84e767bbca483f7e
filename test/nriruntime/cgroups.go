// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriruntime

import (
	"path"
	"strings"
)

// cgroupParent returns the cgroup parent that the kubelet gives to the runtime for a Guaranteed pod. With the systemd
// driver, the cgroup parent is the whole path of slices, not only the last slice.
func cgroupParent(uid string, systemd bool) string {
	if !systemd {
		return "/kubepods/pod" + uid
	}
	return "/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
}

// cgroupsPath returns what containerd writes into linux.cgroupsPath of the spec: slice:prefix:name below a slice, or
// else a path.
func cgroupsPath(parent, id string) string {
	if base := path.Base(parent); strings.HasSuffix(base, ".slice") {
		return base + ":cri-containerd:" + id
	}
	return path.Join(parent, id)
}

// CgroupDir returns the directory, below the cgroup root, of a container with the given linux.cgroupsPath. runc makes
// prefix-name.scope below the slice. Each dash in the name of a slice stands for one more parent slice.
func CgroupDir(cgroupsPath string) string {
	parts := strings.Split(cgroupsPath, ":")
	if len(parts) != 3 {
		return path.Join("/", cgroupsPath)
	}
	return path.Join(sliceDir(parts[0]), parts[1]+"-"+parts[2]+".scope")
}

func sliceDir(slice string) string {
	dir, name := "/", ""
	for _, part := range strings.Split(strings.TrimSuffix(slice, ".slice"), "-") {
		name += part
		dir = path.Join(dir, name+".slice")
		name += "-"
	}
	return dir
}
