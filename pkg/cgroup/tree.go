// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

var (
	// ErrNoIO means that no mounted hierarchy has an io (v2) or blkio (v1) controller.
	ErrNoIO = errors.New("no mounted cgroup hierarchy has the io controller (in cgroup v1: blkio)")
	// ErrNoCgroup means that a target has no cgroup: it is gone, or not there yet.
	ErrNoCgroup = errors.New("no such cgroup")
)

// usualPoint is where every distribution mounts its hierarchies.
const usualPoint = "/sys/fs/cgroup"

// FS is what a Tree needs of the host; paths are the host's own.
type FS interface {
	ReadFile(path string) ([]byte, error)
	ReadDir(path string) ([]string, error)
}

// dirLister is an FS that knows what is a directory, which saves to find that out for each of the many files of a cgroup.
type dirLister interface {
	Subdirs(path string) ([]string, error)
}

// Tree is the machine's cgroup hierarchies as they were mounted at Detect. It is immutable and safe for concurrent use.
type Tree struct {
	fs          FS
	hierarchies []hierarchy
	// io is the index of the hierarchy with the io controller, or -1.
	io int
}

// below are the names of the cgroups in one, and perhaps of files.
func (t *Tree) below(dir string) ([]string, error) {
	if lister, ok := t.fs.(dirLister); ok {
		return lister.Subdirs(dir)
	}
	return t.fs.ReadDir(dir)
}

// Detect finds out how cgroups are mounted on the host: from what its first process sees, or this one where that may not
// be read. A machine without an io controller is not an error here; IORoot and IODir say so.
func Detect(fs FS) (*Tree, error) {
	var failed []error
	for _, file := range []string{"/proc/1/mountinfo", "/proc/self/mountinfo"} {
		data, err := fs.ReadFile(file)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		hierarchies, err := parseMountinfo(data)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", file, err))
			continue
		}
		tree := &Tree{fs: fs, hierarchies: hierarchies}
		tree.io = tree.findIO()
		return tree, nil
	}
	return nil, fmt.Errorf("find the cgroup mounts: %w", errors.Join(failed...))
}

// findIO prefers the v1 controller: once it is mounted, v2 does not have it.
func (t *Tree) findIO() int {
	isV1 := func(h hierarchy) bool { return h.version == 1 && slices.Contains(h.controllers, "blkio") }
	if i := slices.IndexFunc(t.hierarchies, isV1); i >= 0 {
		return i
	}
	return slices.IndexFunc(t.hierarchies, func(h hierarchy) bool {
		if h.version != 2 {
			return false
		}
		controllers, err := t.fs.ReadFile(path.Join(h.point, "cgroup.controllers"))
		return err == nil && slices.Contains(strings.Fields(string(controllers)), "io")
	})
}

// IORoot returns where the hierarchy with the io controller is mounted, and its version, 1 or 2; ErrNoIO without one.
func (t *Tree) IORoot() (dir string, version int, err error) {
	if t.io < 0 {
		return "", 0, ErrNoIO
	}
	return t.hierarchies[t.io].point, t.hierarchies[t.io].version, nil
}

// Unified says whether runtimes run in cgroup v2 mode here, and so take values for cgroup v2 files: that is so when the
// cgroup2 tree, and no other, is at /sys/fs/cgroup.
func (t *Tree) Unified() bool {
	return slices.ContainsFunc(t.hierarchies, func(h hierarchy) bool { return h.version == 2 && h.point == usualPoint })
}

// IODir returns the directory in which the io controller's files of a target are, and the version of their hierarchy.
// The error is ErrNoIO, ErrNoCgroup or ErrBadPath.
func (t *Tree) IODir(target classes.Holder) (dir string, version int, err error) {
	if t.io < 0 {
		return "", 0, ErrNoIO
	}
	h := t.hierarchies[t.io]
	dir, err = t.dir(h, target)
	if err != nil {
		return "", 0, err
	}
	return t.payloadDir(target, dir), h.version, nil
}

// dir is the target's directory in a hierarchy: where its cgroups path leads or, for a container with a process, where the
// kernel says that the process is.
func (t *Tree) dir(h hierarchy, target classes.Holder) (string, error) {
	group, err := Path(target.CgroupsPath)
	switch {
	case target.CgroupsPath == "":
		err = fmt.Errorf("%w: the runtime told no path", ErrNoCgroup)
	case err != nil:
		return "", err
	case t.isGroup(path.Join(h.point, group)):
		return path.Join(h.point, group), nil
	default:
		err = fmt.Errorf("%w: %s", ErrNoCgroup, path.Join(h.point, group))
	}
	// The first process of a pod's sandbox is in the sandbox's cgroup, not in the pod's.
	if target.PID <= 0 || target.Container == "" {
		return "", err
	}
	actual, pidErr := t.groupOf(h, target.PID)
	if pidErr != nil {
		return "", errors.Join(err, pidErr)
	}
	if !isOwn(target, group, actual) {
		return "", fmt.Errorf("%w, and process %d is in %s, which is not its own", err, target.PID, actual)
	}
	return h.below(actual), nil
}

// isOwn says whether the cgroup in which a container's process is can be the container's own. It is somebody else's, such as
// the runtime's service, in hierarchies that the runtime does not use.
func isOwn(target classes.Holder, group, actual string) bool {
	return group != "" && group != "/" && strings.HasSuffix(actual, group) || target.ID != "" && strings.Contains(actual, target.ID)
}

// payloadDir is dir, or the cgroup "container" in it: crun, told so, makes a scope with such a child, and gives the values to the
// child. The cgroup is asked for the process rather than the other way round: a reader in a cgroup namespace of its own, as in
// a container, is told paths that begin in that.
func (t *Tree) payloadDir(target classes.Holder, dir string) string {
	if target.PID <= 0 || target.Container == "" || !isSystemd(target.CgroupsPath) {
		return dir
	}
	payload := path.Join(dir, "container")
	processes, err := t.threadsBelow(payload, "cgroup.procs")
	if err == nil && slices.Contains(processes, target.PID) {
		return payload
	}
	return dir
}

func (t *Tree) isGroup(dir string) bool {
	_, err := t.fs.ReadFile(path.Join(dir, "cgroup.procs"))
	return err == nil || !errors.Is(err, fs.ErrNotExist) // a threaded cgroup refuses to be read, but exists
}
