// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cgroup finds the cgroups of containers and pods, and the threads in them, on machines with cgroup v2, v1 or both.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/mountinfo"
)

var (
	// ErrNoIO means that no mounted hierarchy has an io (v2) or blkio (v1) controller.
	ErrNoIO = errors.New("no mounted cgroup hierarchy has the io controller (in cgroup v1: blkio)")
	// ErrNoCgroup means that a target has no cgroup, because the target has ended or has not started yet.
	ErrNoCgroup = errors.New("no such cgroup")
)

// defaultMount is the directory at which distributions mount the cgroup hierarchies.
const defaultMount = "/sys/fs/cgroup"

// FS is the part of the host's filesystem that a Tree needs. Paths are paths on the host.
type FS interface {
	FileReader
	ReadDir(path string) ([]string, error)
}

// dirLister is an FS that can list the subdirectories of a directory. If an FS is not a dirLister, its ReadDir lists files,
// too. idsBelow then treats each file as a child cgroup, and ignores the errors.
type dirLister interface {
	Subdirs(path string) ([]string, error)
}

// finder is an FS that can find a file with one system call, without reading the file.
type finder interface {
	// Exists returns false if a file does not exist. If that is unknown, it returns true.
	Exists(path string) bool
}

// Tree has the machine's cgroup hierarchies as they were mounted when Detect ran. It is immutable and safe for concurrent use.
type Tree struct {
	fs          FS
	hierarchies []hierarchy
	// io is the hierarchy with the io controller, or nil.
	io *hierarchy
}

// children returns the names of the cgroups in a cgroup. If fs is not a dirLister, the result also has the names of files.
func (t *Tree) children(dir string) ([]string, error) {
	if lister, ok := t.fs.(dirLister); ok {
		return lister.Subdirs(dir)
	}
	return t.fs.ReadDir(dir)
}

// Detect finds the cgroup mounts of the host's process 1. If these mounts cannot be read, Detect finds the mounts of this
// process. Detect succeeds on a machine without an io controller; only IORoot and IODir then return an error.
func Detect(fs FS) (*Tree, error) {
	tree := &Tree{fs: fs}
	var err error
	for _, file := range []string{mountinfo.File(1), "/proc/self/mountinfo"} {
		if tree.hierarchies, err = readHierarchies(fs, file); err == nil || len(tree.hierarchies) > 0 {
			tree.io = tree.findIO()
			return tree, nil
		}
	}
	return nil, fmt.Errorf("find the cgroup mounts: %w", err)
}

// findIO returns the hierarchy with the io controller, or nil. At most one hierarchy has it, because the kernel
// attaches a controller either to a v1 hierarchy or to v2.
func (t *Tree) findIO() *hierarchy {
	for i, h := range t.hierarchies {
		if slices.Contains(h.controllers, "blkio") {
			return &t.hierarchies[i]
		}
		controllers, err := t.fs.ReadFile(path.Join(h.point, "cgroup.controllers"))
		if h.version == 2 && err == nil && slices.Contains(strings.Fields(string(controllers)), "io") {
			return &t.hierarchies[i]
		}
	}
	return nil
}

// IORoot returns the mount point of the hierarchy with the io controller, and its cgroup version, 1 or 2. If there is
// no such hierarchy, the error is ErrNoIO.
func (t *Tree) IORoot() (dir string, version int, err error) {
	if t.io == nil {
		return "", 0, ErrNoIO
	}
	return t.io.point, t.io.version, nil
}

// Unified reports whether container runtimes use cgroup v2 mode and accept values for cgroup v2 files. Runtimes do so
// when the cgroup2 tree is mounted at /sys/fs/cgroup itself.
func (t *Tree) Unified() bool {
	return slices.ContainsFunc(t.hierarchies, func(h hierarchy) bool { return h.version == 2 && h.point == defaultMount })
}

// IODir returns the directory with the target's io controller files, and the cgroup version of this directory. The error is
// ErrNoIO, ErrNoCgroup or ErrBadPath.
func (t *Tree) IODir(target classes.Holder) (dir string, version int, err error) {
	if t.io == nil {
		return "", 0, ErrNoIO
	}
	dir, err = t.dir(*t.io, target)
	if err != nil {
		return "", 0, err
	}
	return t.payloadDir(target, dir), t.io.version, nil
}

// UnifiedDir returns the directory with the target's cgroup v2 files. The error is ErrNoCgroup or ErrBadPath, even if cgroup v2 is not
// mounted.
func (t *Tree) UnifiedDir(target classes.Holder) (string, error) {
	for _, h := range t.hierarchies {
		if h.version == 2 {
			dir, err := t.dir(h, target)
			if err != nil {
				return "", err
			}
			return t.payloadDir(target, dir), nil
		}
	}
	return "", fmt.Errorf("%w: cgroup v2 is not mounted", ErrNoCgroup)
}

// Exists reports whether the target has a cgroup in any hierarchy. For an unknown or malformed cgroups path, and if no
// hierarchy is mounted, it returns true.
func (t *Tree) Exists(target classes.Holder) bool {
	return target.CgroupsPath == "" || len(t.hierarchies) == 0 || slices.ContainsFunc(t.hierarchies, func(h hierarchy) bool {
		_, err := t.dir(h, target)
		return !errors.Is(err, ErrNoCgroup)
	})
}

// dir returns the target's directory in a hierarchy: the directory of its cgroups path or, if that does not exist, the
// directory of its process's cgroup. dir never returns the directory of a cgroup that other processes
// may share.
func (t *Tree) dir(h hierarchy, target classes.Holder) (string, error) {
	group, err := ownPath(target)
	dir := h.point + group
	switch {
	case target.CgroupsPath == "":
		err = fmt.Errorf("%w: the runtime reported no cgroups path", ErrNoCgroup)
	case err != nil || t.isGroup(dir):
		return dir, err
	default:
		err = fmt.Errorf("%w: %s", ErrNoCgroup, dir)
	}

	// A pod's cgroup cannot be found through a process: the sandbox's first process is in the sandbox's own cgroup.
	if target.PID <= 0 || target.Scope() != classes.ContainerScope {
		return "", err
	}
	actual, pidErr := t.groupOf(h, target.PID)
	if pidErr != nil {
		return "", errors.Join(err, pidErr)
	}
	// In a hierarchy that the runtime does not manage, the process shares a cgroup with others, e.g. with the runtime.
	if !isOwn(target, actual) {
		return "", fmt.Errorf("%w, and process %d is in %s, which is not the container's own cgroup", err, target.PID, actual)
	}
	return h.dirOf(actual), nil
}

// payloadDir returns the directory in which the runtime sets the target's values: dir, or its child "container" if the
// target's process is there. crun can be configured to create that child. payloadDir does not read /proc/<pid>/cgroup,
// because the paths in that file are relative to the cgroup namespace of the reader.
func (t *Tree) payloadDir(target classes.Holder, dir string) string {
	if target.PID <= 0 || target.Scope() != classes.ContainerScope || !isSystemd(target.CgroupsPath) {
		return dir
	}
	payload := dir + "/container"
	if processes, err := t.idsBelow(payload, "cgroup.procs"); err == nil && slices.Contains(processes, target.PID) {
		return payload
	}
	return dir
}

func (t *Tree) isGroup(dir string) bool {
	if fs, ok := t.fs.(finder); ok {
		return fs.Exists(dir)
	}
	_, err := t.fs.ReadFile(dir + "/cgroup.procs")
	return err == nil || !errors.Is(err, fs.ErrNotExist) // a threaded cgroup refuses the read, but exists
}
