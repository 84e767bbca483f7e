// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// FS is the resctrl filesystem of a simulated machine, with the files in /proc that belong to it. Its methods take
// absolute paths. It is safe for concurrent use.
type FS struct {
	spec Spec

	mu   sync.Mutex
	live *mounted // nil while unmounted
	// limbo is the number of RMIDs in limbo while unmounted.
	limbo int
	// offline has the domains without CPUs, as indexes of Spec.Domains.
	offline []int
	// tasks maps thread IDs to tasks.
	tasks map[int]*task
	// calls is the number of Calls since the last call of Inject.
	calls int
	fault func(Call) *Fault
}

// Call is a call of a method that changes the filesystem: a write, mkdir, remove, rename or mount.
type Call struct {
	// N is the number of the call since the last call of Inject, from 1.
	N        int
	Op, Path string
	Data     string
}

// Fault makes an operation fail.
type Fault struct {
	Errno syscall.Errno
	// Status is the content of info/last_cmd_status after the fault. If it is empty, the content is unchanged.
	Status string
	// Late is true if the operation takes effect although it returns Errno.
	Late bool
}

// New returns the resctrl of a machine. It panics if the mount options of the spec are wrong, because this is an error in
// the test.
func New(spec Spec) *FS {
	f := &FS{spec: spec, tasks: map[int]*task{}}
	if !spec.Unmounted && !spec.NoKernel {
		if err := f.mount(spec.Options); err != nil {
			panic(err)
		}
	}
	return f
}

// Inject sets the function that returns the fault for each call, or nil for a call without a fault. Inject(nil) ends the
// faults. Inject also sets the number of calls to 0. FS calls the function while it holds its lock.
func (f *FS) Inject(fault func(Call) *Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.fault = 0, fault
}

// Calls returns the number of changing operations (see Call) since the last Inject. It includes failed operations.
func (f *FS) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Unmount unmounts resctrl, which removes all groups.
func (f *FS) Unmount() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live != nil && f.spec.Limbo {
		f.limbo = f.spec.RMIDs - 1 - f.live.rmids
	}
	f.live = nil
	for _, t := range f.tasks {
		t.group = nil
	}
}

// Drain frees the RMIDs in limbo.
func (f *FS) Drain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limbo = 0
	if f.live != nil {
		f.live.rmids, f.live.limbo = f.live.rmids+f.live.limbo, 0
	}
}

// change executes a Call. It first asks the fault function whether the call must fail.
func (f *FS) change(op, name, data string, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.fault != nil {
		if fault := f.fault(Call{f.calls, op, name, data}); fault != nil {
			if fault.Late {
				_ = do()
			}
			if f.live != nil && fault.Status != "" {
				f.live.status = fault.Status + "\n"
			}
			return &fs.PathError{Op: op, Path: name, Err: fault.Errno}
		}
	}

	if err := do(); err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}

	return nil
}

// ReadFile returns the content of a file.
func (f *FS) ReadFile(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := f.read(path.Clean(name))
	if elements, below := f.below(path.Clean(name)); err != nil && below && err == syscall.ENOENT && f.live != nil {
		text, err = f.readUnknown(strings.Join(elements, "/"))
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return []byte(text), nil
}

// WriteFile writes to an existing file.
func (f *FS) WriteFile(name string, data []byte) error {
	return f.change("write", name, string(data), func() error {
		if f.spec.ReadOnly {
			return syscall.EROFS
		}
		g, file, err := f.lookup(path.Clean(name))
		if err != nil {
			return err
		}
		return f.write(g, file, string(data))
	})
}

// Mkdir makes a control group, or in a mon_groups directory a monitoring group.
func (f *FS) Mkdir(name string) error {
	return f.change("mkdir", name, "", func() error { return f.mkdir(path.Clean(name)) })
}

// Remove removes a group.
func (f *FS) Remove(name string) error {
	return f.change("remove", name, "", func() error { return f.remove(path.Clean(name)) })
}

// Rename moves a monitoring group, together with its tasks, to another control group.
func (f *FS) Rename(from, to string) error {
	return f.change("rename", from, to, func() error { return f.rename(path.Clean(from), path.Clean(to)) })
}

// Mount mounts resctrl at MountPoint.
func (f *FS) Mount(_, target, fstype, options string) error {
	return f.change("mount", target, options, func() error {
		switch {
		case fstype != "resctrl", f.spec.NoKernel:
			return syscall.ENODEV
		case target != MountPoint:
			return syscall.ENOENT
		case f.live != nil:
			return syscall.EBUSY
		}
		return f.mount(options)
	})
}

// ReadDir returns the names in a directory, sorted.
func (f *FS) ReadDir(name string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names, err := f.list(path.Clean(name))
	if elements, below := f.below(path.Clean(name)); below && f.live != nil {
		if more, adds := f.listUnknown(strings.Join(elements, "/")); adds {
			names, err = append(names, more...), nil
		}
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	slices.Sort(names)
	return names, nil
}

// Dump returns, by path, the content of all files of control groups and of the files "tasks" of monitoring groups. It
// does not return last_cmd_status, so an operation that fails without an effect does not change the result.
func (f *FS) Dump() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	files := map[string]string{}
	if f.live == nil {
		return files
	}

	for _, g := range f.live.control() {
		for _, file := range f.files(g) {
			name := path.Join(MountPoint, g.name, file)
			if text, err := f.read(name); err == nil {
				files[name] = text
			}
		}
		for mon := range g.mons {
			name := path.Join(MountPoint, g.name, "mon_groups", mon, "tasks")
			files[name], _ = f.read(name)
		}
	}

	return files
}

// below returns the elements of a path relative to the mount point. It reports false if the path is not below the mount point.
func (f *FS) below(name string) ([]string, bool) {
	if name == MountPoint {
		return nil, true
	}
	rest, ok := strings.CutPrefix(name, MountPoint+"/")
	return strings.Split(rest, "/"), ok
}
