// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// ErrBadPath is the error for a cgroups path that is malformed, leads out of the cgroup tree, or names a cgroup that
// other processes may share.
var ErrBadPath = errors.New("unusable cgroups path from the runtime")

const sliceSuffix = ".slice"

// ownPath returns the path of the target's cgroup. If other processes may be in this cgroup too, e.g. if it is the
// root, ownPath returns ErrBadPath, because these processes would get the target's class as well.
func ownPath(target classes.Holder) (string, error) {
	group, err := Path(target.CgroupsPath)
	if err != nil {
		return "", err
	}
	if isOwn(target, group) {
		return group, nil
	}

	of, id := "container's ID", target.ID
	if target.Scope() != classes.ContainerScope {
		of, id = "pod's UID", target.PodUID
	}
	return "", fmt.Errorf("%w: %.300q may be shared with others, because its name lacks the %s %.64q", ErrBadPath, target.CgroupsPath, of, id)
}

// isOwn reports whether a cgroup belongs to the target alone. A container's cgroup has the container's ID in its name, and a
// pod's cgroup has the pod's UID. In the names of slices, the UID has underscores instead of dashes.
func isOwn(target classes.Holder, group string) bool {
	if target.Scope() == classes.ContainerScope {
		return target.ID != "" && strings.Contains(group, target.ID)
	}
	uid := target.PodUID
	return uid != "" && (strings.Contains(group, uid) || strings.Contains(group, strings.ReplaceAll(uid, "-", "_")))
}

// Path converts the cgroupsPath of the OCI runtime specification, or a pod's cgroup parent, to a path below the root of
// a hierarchy. The result begins with "/". Path accepts a path, "slice:prefix:name", or a slice.
func Path(cgroupsPath string) (string, error) {
	switch {
	case cgroupsPath == "":
		return "", fmt.Errorf("%w: it is empty", ErrBadPath)
	case isSystemd(cgroupsPath):
		return unitPath(cgroupsPath)
	case !strings.Contains(cgroupsPath, "/") && strings.HasSuffix(cgroupsPath, sliceSuffix):
		return slicePath(cgroupsPath)
	}
	return cleanPath(cgroupsPath)
}

// isSystemd reports whether a cgroups path has the form "slice:prefix:name". A value with a "/" does not have this form: it
// is a path, and the names in it can have colons.
func isSystemd(cgroupsPath string) bool {
	return strings.Count(cgroupsPath, ":") == 2 && !strings.Contains(cgroupsPath, "/")
}

func cleanPath(cgroupsPath string) (string, error) {
	if strings.Contains(cgroupsPath, "..") && slices.Contains(strings.Split(cgroupsPath, "/"), "..") {
		return "", fmt.Errorf("%w: %.300q leaves the cgroup tree", ErrBadPath, cgroupsPath)
	}
	if !strings.HasPrefix(cgroupsPath, "/") {
		cgroupsPath = "/" + cgroupsPath
	}
	return path.Clean(cgroupsPath), nil
}

// unitPath returns the path of the systemd unit that container runtimes create for "slice:prefix:name".
func unitPath(cgroupsPath string) (string, error) {
	parts := strings.Split(cgroupsPath, ":")
	prefix, name := parts[1], parts[2]
	parent, err := slicePath(cmp.Or(parts[0], "system.slice")) // the default of runc and crun
	if err != nil {
		return "", err
	}

	switch {
	case name == "":
		return "", fmt.Errorf("%w: %.300q has no name after its last colon", ErrBadPath, cgroupsPath)
	case strings.HasSuffix(name, sliceSuffix):
		return path.Join(parent, name), nil
	case prefix != "":
		name = prefix + "-" + name
	}
	return path.Join(parent, name+".scope"), nil
}

// slicePath returns the path of a slice with its ancestors (systemd.slice(5)). The path of "a-b.slice" is
// /a.slice/a-b.slice. The path of "-.slice" is the root.
func slicePath(slice string) (string, error) {
	if slice == "-.slice" {
		return "/", nil
	}
	name, isSlice := strings.CutSuffix(slice, sliceSuffix)
	parts := strings.Split(name, "-")
	if !isSlice || strings.Contains(name, "/") || slices.Contains(parts, "") {
		return "", fmt.Errorf("%w: %.300q is not a systemd slice", ErrBadPath, slice)
	}

	expanded := "/"
	for i := range parts {
		expanded = path.Join(expanded, strings.Join(parts[:i+1], "-")+sliceSuffix)
	}
	return expanded, nil
}
