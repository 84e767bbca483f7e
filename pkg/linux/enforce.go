// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Enforce implements classes.Backend. It verifies what only the runtime can set, and writes the values of cgroup v2 that the cgroup lacks.
func (b *Backend) Enforce(ctx context.Context, target classes.Holder, from, to string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("enforce: %w", err)
	}
	if b.scope == classes.PodScope {
		return b.enforcePod(target, from, to)
	}
	adjustment, err := b.Adjust(target, from, to)
	if err != nil {
		return err
	}

	// If a running container already has a class, its process has the properties from its creation. These are not
	// verified, because they may be stale.
	if target.Starting || from == classes.SystemDefault {
		if err := b.verify(target, adjustment, to); err != nil {
			return err
		}
	}
	return b.write(target, adjustment.Unified())
}

// verify returns an error for the first property of a process that differs from the class.
func (b *Backend) verify(target classes.Holder, adjustment classes.Adjustment, to string) error {
	differing, err := b.differing(target, adjustment)
	if err != nil || len(differing) == 0 {
		return err
	}

	first := differing[0]
	if !target.Starting {
		return fmt.Errorf("%s is %s, and the class has %s: a runtime sets it only when it creates a container; create the pod again",
			first.setting, first.has, first.wanted)
	}
	return fmt.Errorf("%s is %s, and the class has %s: the container runtime has not set it; "+
		"upgrade the OCI runtime, or remove the property from class %q", first.setting, first.has, first.wanted, to)
}

// difference is a property of a process that has another value than the class sets.
type difference struct {
	setting     classes.Setting
	has, wanted string
}

// differing compares the target's first process with an adjustment. It reads nothing if the adjustment has only values of cgroups.
func (b *Backend) differing(target classes.Holder, adjustment classes.Adjustment) (differing []difference, err error) {
	for _, setting := range adjustment.Settings() {
		if setting.Name == classes.SettingUnified {
			continue
		}
		pid, err := b.firstProcess(target)
		if err != nil {
			return nil, err
		}
		has, err := process{b.opts.FS, pid}.read(setting)
		if err != nil {
			return nil, fmt.Errorf("read %s back: %w", setting, err)
		}
		if wanted := adjustment[setting]; !sameText(setting, has, wanted, target.Starting) {
			differing = append(differing, difference{setting, has, wanted})
		}
	}
	return differing, nil
}

// firstProcess returns the ID of the target's first process. CRI-O before 1.36 does not report this ID. The result is
// then the lowest ID in the cgroup.
func (b *Backend) firstProcess(target classes.Holder) (int, error) {
	if target.PID > 0 {
		return target.PID, nil
	}
	threads, err := b.opts.Tree.Threads(target)
	if err != nil || len(threads) == 0 {
		return 0, errors.Join(classes.ErrEnded, err)
	}
	return threads[0], nil
}

// write writes values to the target's cgroup and reads them back. After an error it restores the files that it has written.
func (b *Backend) write(target classes.Holder, files map[string]string) (err error) {
	if len(files) == 0 {
		return nil
	}
	dir, err := b.opts.Tree.UnifiedDir(target)
	if err != nil {
		return fmt.Errorf("find the cgroup: %w", err)
	}

	var undo []func()
	defer func() {
		if err != nil {
			for _, restore := range slices.Backward(undo) {
				restore()
			}
		}
	}()
	// The weight is last, because the kernel refuses to set the weight of a cgroup that is idle.
	known := cgroupFiles()
	for _, f := range append(known[:], cgroupFile{name: weightFile, file: weightFile}) {
		wanted, sets := files[f.file]
		if !sets {
			continue
		}
		file := path.Join(dir, f.file)
		before, err := b.opts.read(file)
		if err != nil {
			return err
		}
		if before == wanted {
			continue
		}
		undo = append(undo, func() { _ = b.opts.FS.WriteFile(file, []byte(before)) })
		if err := b.opts.FS.WriteFile(file, []byte(wanted)); err != nil {
			return fmt.Errorf("set %s to %s: %w", f.name, wanted, err)
		}
		if now, err := b.opts.read(file); err != nil || now != wanted {
			return errors.Join(err, fmt.Errorf("%s is %s after %s was written to %s", f.name, quote(now), wanted, file))
		}
	}
	return nil
}

var _ classes.Resizer = (*Backend)(nil)

// BeforeResize implements classes.Resizer. The kernel refuses a CPU limit that is lower than the burst (kernel/sched/core.c).
func (b *Backend) BeforeResize(_ context.Context, target classes.Holder, class string) error {
	adjustment, err := b.Adjust(target, class, class)
	if err != nil {
		return err
	}
	wanted, sets := adjustment[classes.Unified(burstFile)]
	if !sets {
		return nil
	}
	dir, err := b.opts.Tree.UnifiedDir(target)
	if err != nil {
		return fmt.Errorf("find the cgroup: %w", err)
	}
	has, err := b.opts.read(path.Join(dir, burstFile))
	if err != nil {
		return err
	}

	before, beforeErr := strconv.ParseInt(has, 10, 64)
	after, afterErr := strconv.ParseInt(wanted, 10, 64)
	if beforeErr != nil || afterErr != nil || after >= before {
		return errors.Join(beforeErr, afterErr)
	}
	return b.opts.FS.WriteFile(path.Join(dir, burstFile), []byte(wanted))
}

func (o Options) read(file string) (string, error) {
	data, err := o.FS.ReadFile(file)
	return strings.TrimSpace(string(data)), err
}

// Observe implements classes.Backend. A container is in the class `want` if its cgroup has the values of the class. In the system default,
// its cgroup has the values from before the class. If the values differ, the class is unknown, because the kubelet also sets such values.
func (b *Backend) Observe(ctx context.Context, target classes.Holder, want string) (classes.Observation, error) {
	if err := ctx.Err(); err != nil {
		return classes.Observation{}, fmt.Errorf("observe: %w", err)
	}
	if b.scope == classes.PodScope {
		return b.observePod(target, want)
	}
	s := b.live.Load()
	c, err := s.class(want)
	if err != nil {
		return classes.Observation{}, nil //nolint:nilerr // a class that no class file has any more is unknown
	}

	adjustment, stale := classes.Adjustment{}, []string(nil)
	for _, p := range c {
		text, sets, err := p.value.text(target.Spec)
		switch {
		case err != nil:
			stale = append(stale, p.name)
		case sets:
			adjustment[p.setting] = text
		}
	}
	if want == classes.SystemDefault {
		adjustment, _ = b.Adjust(target, want, want)
	}
	has, err := b.hasValues(target, adjustment.Unified())
	if err != nil {
		return classes.Observation{}, err
	}
	differing, err := b.differing(target, adjustment)
	if err != nil {
		return classes.Observation{}, err
	}
	for _, p := range c {
		if slices.ContainsFunc(differing, func(d difference) bool { return d.setting == p.setting }) {
			stale = append(stale, p.name)
		}
	}
	slices.Sort(stale)
	seen := classes.Observation{Stale: strings.Join(stale, " ")}
	if has {
		seen.Class, seen.Known = want, true
		seen.Limited = b.limited(target, c, adjustment)
	}
	return seen, nil
}

// hasValues reports whether the target's cgroup has all values.
func (b *Backend) hasValues(target classes.Holder, files map[string]string) (bool, error) {
	if len(files) == 0 {
		return true, nil
	}
	dir, err := b.runningDir(target)
	if err != nil {
		return false, err
	}
	for file, wanted := range files {
		has, err := b.opts.read(path.Join(dir, file))
		if err != nil {
			return false, err
		}
		if has != wanted {
			return false, nil
		}
	}
	return true, nil
}
