// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// ErrBadPath is in the chain of errors about a cgroups path that no runtime would give, or that leads out of the tree.
var ErrBadPath = errors.New("not a cgroups path")

const (
	sliceSuffix = ".slice"
	// systemSlice is where runc and crun put containers whose specification names no slice.
	systemSlice = "system.slice"
)

// Path turns cgroupsPath of the OCI runtime specification, or in pod scope the pod's cgroup parent, into a path below the
// root of a hierarchy, beginning with "/". It understands paths, "slice:prefix:name", and slices.
func Path(cgroupsPath string) (string, error) {
	switch {
	case cgroupsPath == "":
		return "", fmt.Errorf("%w: it is empty", ErrBadPath)
	case isSystemd(cgroupsPath):
		return scopePath(cgroupsPath)
	case !strings.Contains(cgroupsPath, "/") && strings.HasSuffix(cgroupsPath, sliceSuffix):
		return slicePath(cgroupsPath)
	}
	return cleanPath(cgroupsPath)
}

// isSystemd tells "slice:prefix:name" from a path, in which a colon is a character like any other.
func isSystemd(cgroupsPath string) bool {
	return strings.Count(cgroupsPath, ":") == 2 && !strings.Contains(cgroupsPath, "/")
}

func cleanPath(cgroupsPath string) (string, error) {
	if slices.Contains(strings.Split(cgroupsPath, "/"), "..") {
		return "", fmt.Errorf("%w: %q leaves the cgroup tree", ErrBadPath, cgroupsPath)
	}
	return path.Join("/", cgroupsPath), nil
}

// scopePath is where systemd puts the unit that runtimes make for "slice:prefix:name".
func scopePath(cgroupsPath string) (string, error) {
	parts := strings.Split(cgroupsPath, ":")
	slice, prefix, name := parts[0], parts[1], parts[2]
	if slice == "" {
		slice = systemSlice
	}
	parent, err := slicePath(slice)
	if err != nil {
		return "", err
	}
	if name == "" {
		return "", fmt.Errorf("%w: %q has no name after its last colon", ErrBadPath, cgroupsPath)
	}
	return path.Join(parent, unitName(prefix, name)), nil
}

func unitName(prefix, name string) string {
	switch {
	case strings.HasSuffix(name, sliceSuffix):
		return name
	case prefix == "":
		return name + ".scope"
	}
	return prefix + "-" + name + ".scope"
}

// slicePath expands a slice to its ancestors, each named by one more part (systemd.slice(5)): "a-b.slice" is
// /a.slice/a-b.slice, and "-.slice" the root.
func slicePath(slice string) (string, error) {
	name, isSlice := strings.CutSuffix(slice, sliceSuffix)
	if !isSlice || strings.Contains(name, "/") {
		return "", fmt.Errorf("%w: %q is not a systemd slice", ErrBadPath, slice)
	}
	if name == "-" {
		return "/", nil
	}
	expanded := "/"
	parts := strings.Split(name, "-")
	for i, part := range parts {
		if part == "" {
			return "", fmt.Errorf("%w: %q is not a systemd slice: a part between dashes is empty", ErrBadPath, slice)
		}
		expanded = path.Join(expanded, strings.Join(parts[:i+1], "-")+sliceSuffix)
	}
	return expanded, nil
}
