// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

const (
	cgroupRoot  = "/sys/fs/cgroup"
	resctrlRoot = "/sys/fs/resctrl"
)

// Machine is this machine: containers are processes in cgroups and resctrl groups of the real kernel.
type Machine struct {
	hostfs.Root

	// Command returns the command that the next container or exec runs. The default sleeps.
	Command func() *exec.Cmd

	mu        sync.Mutex // guards processes
	processes map[string][]*process
}

// NewMachine returns this machine. It needs root and cgroup v2, and fails if another plugin has classes on this machine.
func NewMachine() (*Machine, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("to change resctrl and cgroups of this machine, run as root")
	}

	if _, err := os.Stat(cgroupRoot + "/cgroup.controllers"); err != nil {
		return nil, fmt.Errorf("this machine has no cgroup v2 at %s: %w", cgroupRoot, err)
	}

	groups, err := filepath.Glob(resctrlRoot + "/qos-*")
	if err != nil {
		return nil, err
	}

	if len(groups) > 0 {
		return nil, fmt.Errorf("%s is a group of a plugin with classes on this machine; use a machine without one", groups[0])
	}

	return &Machine{
		Root:      "/",
		Command:   func() *exec.Cmd { return exec.Command("sleep", "600") },
		processes: map[string][]*process{},
	}, nil
}

// MakePodCgroup makes a pod's cgroup, and enables the io controller in it.
func (m *Machine) MakePodCgroup(parent string) error {
	dir := cgroupRoot
	for _, name := range strings.Split(strings.Trim(parent, "/"), "/") {
		if err := m.WriteFile(path.Join(dir, "cgroup.subtree_control"), []byte("+io")); err != nil {
			return err
		}
		dir = path.Join(dir, name)
		if err := m.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return m.WriteFile(path.Join(dir, "cgroup.subtree_control"), []byte("+io"))
}

// RemovePodCgroup removes a pod's cgroup, and the parent cgroup if it has no other pods.
func (m *Machine) RemovePodCgroup(parent string) error {
	if err := m.Remove(path.Join(cgroupRoot, parent)); err != nil {
		return err
	}
	_ = m.Remove(path.Join(cgroupRoot, path.Dir(parent))) // fails while the parent has other pods
	return nil
}

// Create starts the process of the container, which waits for Start.
func (m *Machine) Create(ctx context.Context, spec nriruntime.Spec) (int, error) {
	dir := path.Join(cgroupRoot, nriruntime.CgroupDir(spec.CgroupsPath))
	if err := m.Mkdir(dir); err != nil {
		return 0, err
	}
	if err := m.writeValues(dir, spec.Unified); err != nil {
		return 0, errors.Join(err, m.Remove(dir))
	}
	p, err := m.launch(ctx, spec)
	if err != nil {
		return 0, err
	}
	return p.cmd.Process.Pid, nil
}

// Start lets the process of the container run its command.
func (m *Machine) Start(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.processes[id][0].release()
}

// Exec starts a process in the container's cgroup and resctrl group, and lets it run its command.
func (m *Machine) Exec(ctx context.Context, spec nriruntime.Spec) (int, error) {
	p, err := m.launch(ctx, spec)
	if err != nil {
		return 0, err
	}
	return p.cmd.Process.Pid, p.release()
}

// launch starts a process that waits in the container's cgroup and resctrl group. It has one thread, so all threads that the command
// starts later are in the group too.
func (m *Machine) launch(_ context.Context, spec nriruntime.Spec) (*process, error) {
	wanted := m.Command()
	// The process outlives the request that starts it.
	cmd := exec.Command("sh", append([]string{"-c", `read -r line && exec "$0" "$@"`}, wanted.Args...)...)
	cmd.Stdout, cmd.Stderr = wanted.Stdout, wanted.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}

	if err := cmd.Start(); err != nil {
		return nil, err
	}

	p := &process{cmd: cmd, stdin: stdin}
	m.mu.Lock()
	m.processes[spec.ID] = append(m.processes[spec.ID], p)
	m.mu.Unlock()

	pid := []byte(strconv.Itoa(cmd.Process.Pid))
	dir := path.Join(cgroupRoot, nriruntime.CgroupDir(spec.CgroupsPath))
	if err := m.WriteFile(path.Join(dir, "cgroup.procs"), pid); err != nil {
		return nil, err
	}

	if spec.ClosID == "" {
		return p, nil
	}

	return p, m.WriteFile(path.Join(resctrlRoot, spec.ClosID, "tasks"), pid)
}

// process waits for a line on its standard input before it runs its command.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

func (p *process) release() error {
	_, err := io.WriteString(p.stdin, "\n")
	return errors.Join(err, p.stdin.Close())
}

// Update writes values into a cgroup, line by line, as runc does.
func (m *Machine) Update(_ context.Context, id string, unified map[string]string) error {
	dir, err := m.dirOf(id)
	if err != nil {
		return err
	}
	return m.writeValues(dir, unified)
}

func (m *Machine) writeValues(dir string, unified map[string]string) error {
	for _, file := range slices.Sorted(maps.Keys(unified)) {
		for line := range strings.Lines(unified[file]) {
			if err := m.WriteFile(path.Join(dir, file), []byte(strings.TrimSpace(line))); err != nil {
				return err
			}
		}
	}
	return nil
}

// dirOf finds a container's cgroup by its first process. It returns "" if there is no process yet.
func (m *Machine) dirOf(id string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.processes[id]) == 0 {
		return "", nil
	}

	data, err := m.ReadFile(fmt.Sprintf("/proc/%d/cgroup", m.processes[id][0].cmd.Process.Pid))
	if err != nil {
		return "", err
	}

	for line := range strings.Lines(string(data)) {
		if dir, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path.Join(cgroupRoot, dir), nil
		}
	}

	return "", errors.New("the process is in no cgroup v2")
}

// Delete ends the processes of a container and removes its cgroup.
func (m *Machine) Delete(_ context.Context, id string) error {
	dir, err := m.dirOf(id)
	if err != nil {
		return err
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.processes[id] {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait() // the error is that it was killed
	}

	delete(m.processes, id)
	if dir == "" {
		return nil
	}

	return m.Remove(dir)
}
