// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostdir provides a simulated machine for a plugin that runs in its own process: a directory tree of plain
// files. The plugin gets the path of the tree as --host-root.
package hostdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// Options select the machine. The zero value is a machine with cgroup v2 and without resctrl.
type Options struct {
	// Legacy selects cgroup v1.
	Legacy bool
	// RMIDs is the number of groups that resctrl can monitor. If it is 0, the machine has no resctrl.
	RMIDs int
}

// Host is a directory with the files that the plugin reads on a machine with one disk. The disk has iocost with cgroup
// v2, and bfq with cgroup v1. The methods of Host make cgroups and write values into them as runc does. Plain files
// accept every write. In contrast, the files of package sim refuse the writes that the kernel refuses.
type Host struct {
	// Root is the directory.
	Root    string
	options Options
	pids    atomic.Int64

	mu     sync.Mutex        // guards the fields below
	dirs   map[string]string // cgroups by container ID
	killed []string
}

// New makes the files below an existing directory.
func New(root string, options Options) (*Host, error) {
	h := &Host{Root: root, options: options, dirs: map[string]string{}}
	mounts := "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	if options.Legacy {
		mounts = "30 1 0:26 / " + blkio + " rw - cgroup cgroup rw,blkio\n"
	}

	if options.RMIDs > 0 {
		mounts += "31 1 0:27 / " + resctrl + " rw - resctrl resctrl rw\n"
	}

	files := map[string]string{
		"proc/sys/kernel/random/boot_id":   "11111111-2222-3333-4444-555555555555\n",
		"proc/1/mountinfo":                 mounts,
		"proc/self/mountinfo":              mounts,
		"proc/cpuinfo":                     "flags\t\t: fpu\n",
		"proc/filesystems":                 "nodev\tcgroup2\n",
		"dev/sda":                          "",
		"sys/block/sda/dev":                "8:0\n",
		"sys/block/sda/queue/scheduler":    "[none] mq-deadline\n",
		"sys/fs/cgroup/io.cost.qos":        "8:0 enable=1 ctrl=auto rpct=0.00 rlat=250000 wpct=0.00 wlat=250000 min=1.00 max=10000.00\n",
		"sys/fs/cgroup/cgroup.controllers": "cpu io memory\n",
		"sys/fs/cgroup/cgroup.procs":       "",
	}

	if options.Legacy {
		files["sys/block/sda/queue/scheduler"] = "none [bfq]\n"
	}

	if options.RMIDs > 0 {
		maps.Copy(files, h.resctrlFiles())
	}

	disk := filepath.Join(root, "sys/dev/block/8:0")
	err := errors.Join(h.write(files), os.MkdirAll(filepath.Dir(disk), 0o755), os.Symlink("../../block/sda", disk))
	if err != nil {
		return nil, fmt.Errorf("make a host in %s: %w", root, err)
	}

	return h, nil
}

// write makes files and their directories. The keys are paths below the host's root.
func (h *Host) write(files map[string]string) error {
	for name, content := range files {
		file := filepath.Join(h.Root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// Tree returns the mount point of the hierarchy with the io controller.
func (h *Host) Tree() string {
	if h.options.Legacy {
		return blkio
	}
	return "/sys/fs/cgroup"
}

func (h *Host) dir(cgroup string) string { return filepath.Join(h.Root, h.Tree(), cgroup) }

// MakePodCgroup makes a cgroup with the io controller.
func (h *Host) MakePodCgroup(cgroup string) error {
	files := map[string]string{
		"cgroup.procs": "", "cgroup.threads": "", "cgroup.controllers": "io\n", "cgroup.kill": "", "io.max": "", "io.weight": "default 100\n",
	}

	if h.options.Legacy {
		files = map[string]string{
			"cgroup.procs": "", "tasks": "", "blkio.throttle.read_bps_device": "", "blkio.throttle.write_bps_device": "",
			"blkio.throttle.read_iops_device": "", "blkio.throttle.write_iops_device": "",
			"blkio.bfq.weight": "100\n", "blkio.bfq.weight_device": "",
		}
	}

	for _, name := range UsageFiles() {
		files[name] = ""
	}
	if !h.options.Legacy {
		maps.Copy(files, counters())
	}

	placed := map[string]string{}
	for name, content := range files {
		placed[filepath.Join(h.Tree(), cgroup, name)] = content
	}

	return h.write(placed)
}

// counters has the other files of a cgroup v2 that count what a container uses and waits for.
func counters() map[string]string {
	const pressure = "some avg10=0.00 avg60=0.12 avg300=0.08 total=1203941\nfull avg10=0.00 avg60=0.10 avg300=0.05 total=903122\n"
	return map[string]string{
		"cpu.pressure": pressure, "memory.pressure": pressure,
		"cpu.stat":      "usage_usec 8123456\nuser_usec 6123456\nsystem_usec 2000000\nnr_periods 900\nnr_throttled 12\nthrottled_usec 345678\n",
		"memory.stat":   "anon 52428800\nfile 104857600\nkernel 4194304\nshmem 0\nworkingset_refault_anon 0\nworkingset_refault_file 812\n",
		"memory.events": "low 0\nhigh 3\nmax 0\noom 0\noom_kill 0\n",
	}
}

// UsageFiles returns the names of the files that count I/O in cgroup v2 and in cgroup v1.
func UsageFiles() []string {
	return []string{"io.stat", "io.pressure", "blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_serviced_recursive"}
}

// RemovePodCgroup removes the cgroup with all that is in it.
func (h *Host) RemovePodCgroup(cgroup string) error { return os.RemoveAll(h.dir(cgroup)) }

// Create makes the container's cgroup, puts the ID of a process into it, and writes the values of spec.Unified.
func (h *Host) Create(_ context.Context, spec nriruntime.Spec) (int, error) {
	cgroup := nriruntime.CgroupDir(spec.CgroupsPath)
	if err := h.MakePodCgroup(cgroup); err != nil {
		return 0, err
	}

	h.mu.Lock()
	h.dirs[spec.ID] = h.dir(cgroup)
	h.mu.Unlock()
	pid := firstPID + int(h.pids.Add(1))
	if h.options.RMIDs > 0 {
		if err := h.write(h.monitoredFiles(pid, spec.ID)); err != nil {
			return 0, err
		}
	}

	for _, list := range []string{"cgroup.procs", "cgroup.threads"} {
		if err := os.WriteFile(filepath.Join(h.dir(cgroup), list), []byte(strconv.Itoa(pid)+"\n"), 0o600); err != nil {
			return 0, err
		}
	}

	return pid, h.set(h.dir(cgroup), spec.Unified)
}

// set replaces files by renames. A reader thus never sees an empty file during a write, as with the files of the kernel.
func (h *Host) set(dir string, unified map[string]string) error {
	for file, value := range unified {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path+".new", []byte(strings.TrimSpace(value)+"\n"), 0o600); err != nil {
			return err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}
	}
	return nil
}

// Start has nothing to do.
func (h *Host) Start(context.Context, string) error { return nil }

// Exec returns a new process ID. No such process exists.
func (h *Host) Exec(context.Context, nriruntime.Spec) (int, error) {
	return firstPID + int(h.pids.Add(1)), nil
}

// Update sets the values.
func (h *Host) Update(_ context.Context, id string, unified map[string]string) error {
	dir, err := h.Dir(id)
	if err != nil {
		return err
	}
	return h.set(dir, unified)
}

// Delete removes the container's cgroup.
func (h *Host) Delete(_ context.Context, id string) error {
	dir, err := h.Dir(id)
	if err != nil {
		return nil // deleted already
	}

	kill, err := os.ReadFile(filepath.Join(dir, "cgroup.kill"))
	if h.options.Legacy {
		err = nil // there is no such file
	}

	h.mu.Lock()
	delete(h.dirs, id)
	if len(kill) > 0 {
		h.killed = append(h.killed, id)
	}

	h.mu.Unlock()
	return errors.Join(err, os.RemoveAll(dir), os.RemoveAll(h.monitoringGroup(id)))
}

// Killed returns the deleted containers whose processes were ended through cgroup.kill.
func (h *Host) Killed() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.killed)
}

// Dir returns the directory of a container's cgroup.
func (h *Host) Dir(id string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	dir, ok := h.dirs[id]
	if !ok {
		return "", fmt.Errorf("cgroup of container %s: %w", id, fs.ErrNotExist)
	}
	return dir, nil
}

// ReadFile reads a file in the cgroup of a container. The file ends with a newline, like those of the kernel.
func (h *Host) ReadFile(id, file string) (string, error) {
	dir, err := h.Dir(id)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(filepath.Join(dir, file))
	return strings.TrimSuffix(string(data), "\n") + "\n", err
}
