// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// theirCgroup is the cgroup of another service. That service has set its limits.
const theirCgroup = "/system.slice/theirs.service"

// firstStranger is the first process ID of foreign processes.
const firstStranger = 1_000_000

// makeForeign makes a foreign cgroup.
func (s *Site) makeForeign() error {
	s.machine.Cgroups().AddCgroup(theirCgroup)
	return s.machine.WriteFile(path.Join("/sys/fs/cgroup", theirCgroup, "io.max"), []byte("254:0 rbps=123456"))
}

// ForeignFiles implements steps.Others.
func (s *Site) ForeignFiles() []string {
	return []string{path.Join("/sys/fs/cgroup", theirCgroup, "io.max")}
}

// ChangeForeign implements steps.Others. If the selected group does not exist, ChangeForeign makes it. Otherwise it
// removes the group, writes its schemata, makes or removes a monitoring group in it, or adds a process to it.
func (s *Site) ChangeForeign(_ context.Context, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := []string{"theirs", "container-0123456789ab"}[n%2]
	group := path.Join(resctrl.MountPoint, name)
	if _, err := s.machine.ReadDir(resctrl.MountPoint); err != nil {
		return nil // resctrl is not mounted
	}

	if _, err := s.machine.ReadDir(group); errors.Is(err, fs.ErrNotExist) {
		return s.machine.Mkdir(group)
	}

	switch n / 2 % 4 {
	case 0:
		return s.machine.Remove(group)
	case 1:
		return s.machine.WriteFile(group+"/schemata", fmt.Appendf(nil, "L3:0=%x\n", 1<<(n%12)))
	case 2:
		err := s.machine.Mkdir(group + "/mon_groups/watched")
		if errors.Is(err, fs.ErrExist) {
			return s.machine.Remove(group + "/mon_groups/watched")
		}
		return err
	}

	s.strangers++
	s.machine.Resctrl().AddTask(firstStranger+s.strangers, name)
	return nil
}

// ToggleDisk implements steps.Disks.
func (s *Site) ToggleDisk(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	const letter = 2
	name := "vd" + string(rune('a'+letter))
	if _, there := s.disks[name]; there {
		s.machine.Cgroups().RemoveDisk(name)
		delete(s.disks, name)
		return nil
	}
	s.machine.Cgroups().AddDisk(name, 254, 16*letter)
	s.disks[name] = number(letter)
	return nil
}

// RemoveGroup implements steps.Saboteur.
func (s *Site) RemoveGroup(_ context.Context, group string) error {
	return ignoreGone(s.machine.Remove(path.Join(resctrl.MountPoint, group)))
}

// RewriteGroup implements steps.Saboteur.
func (s *Site) RewriteGroup(_ context.Context, group, schemata string) error {
	return ignoreGone(s.machine.WriteFile(path.Join(resctrl.MountPoint, group, "schemata"), []byte(schemata)))
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Remount implements steps.Saboteur.
func (s *Site) Remount(_ context.Context, again bool) error {
	s.machine.Resctrl().Unmount()
	if !again {
		return nil
	}
	return s.machine.Mount("resctrl", resctrl.MountPoint, "resctrl", "")
}

// Stray implements steps.Saboteur.
func (s *Site) Stray(_ context.Context, id string) error {
	c, err := s.Container(id)
	if err != nil {
		return err
	}
	return ignoreGone(s.machine.WriteFile(resctrl.MountPoint+"/tasks", fmt.Append(nil, c.PID)))
}

// Unlimit implements steps.Saboteur.
func (s *Site) Unlimit(_ context.Context, id string) error {
	c, err := s.Container(id)
	if err != nil {
		return err
	}
	file := path.Join("/sys/fs/cgroup", nriruntime.CgroupDir(c.Spec.CgroupsPath), "io.max")
	return s.machine.WriteFile(file, []byte("254:0 rbps=max wbps=max riops=max wiops=max"))
}
