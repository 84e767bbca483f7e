// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroups are the cgroups of all containers of the test. In every hierarchy of the machine, they are below a cgroup with this name.
type cgroups struct{ name string }

func newCgroups(name string) cgroups { return cgroups{name: name} }

// unified reports whether the machine has only cgroup v2.
func unified() bool {
	_, err := os.Stat(cgroupRoot + "/cgroup.controllers")
	return err == nil
}

func (c cgroups) dirs() []string {
	if unified() {
		return []string{filepath.Join(cgroupRoot, c.name)}
	}
	dirs, _ := filepath.Glob(cgroupRoot + "/*/cgroup.procs")
	for i, file := range dirs {
		dirs[i] = filepath.Join(filepath.Dir(file), c.name)
	}
	return dirs
}

func (c cgroups) make() error {
	for _, dir := range c.dirs() {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := delegate(dir); err != nil {
			return err
		}
	}
	return nil
}

// delegate gives a new cgroup the CPUs and memory nodes of its parent (v1), or enables all controllers for its children (v2).
func delegate(dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		all, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if errors.Is(err, fs.ErrNotExist) || unified() {
			continue
		}
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, file), all, 0)); err != nil {
			return err
		}
	}

	if !unified() {
		return nil
	}

	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}

	enable := "+" + strings.Join(strings.Fields(string(controllers)), " +")
	return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(enable), 0)
}

// remove removes the cgroups. It retries, because the kernel keeps a cgroup busy for a moment after its last process has ended.
func (c cgroups) remove() {
	deadline := time.Now().Add(20 * time.Second)
	for _, dir := range c.dirs() {
		for removeTree(dir) != nil {
			if time.Now().After(deadline) {
				fmt.Fprintln(os.Stderr, "the cgroup", dir, "is still in use, and left behind")
				break
			}
			<-time.After(100 * time.Millisecond)
		}
	}
}

func removeTree(dir string) error {
	children, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, child := range children {
		if child.IsDir() {
			err = errors.Join(err, removeTree(filepath.Join(dir, child.Name())))
		}
	}
	return errors.Join(err, os.Remove(dir))
}

// ofContainer returns the directory of a container's cgroup. With cgroup v1, the directory is in the hierarchy of the controller.
func (c cgroups) ofContainer(controller, id string) (string, error) {
	root := filepath.Join(cgroupRoot, controller, c.name)
	if unified() {
		root = filepath.Join(cgroupRoot, c.name)
	}

	found := ""
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == id {
			found = path
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if found == "" && err == nil {
		err = fmt.Errorf("no cgroup of container %s below %s", id, root)
	}

	return found, err
}
