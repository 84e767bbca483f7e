// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package iocgroup reads, writes and verifies the files of the io controller of cgroup v2 and of the blkio controller of
// cgroup v1: limits of disks in bytes or operations per second, weights, and latency targets.
//
// Inspect returns the Machine: its disks, and the weight files that act on them. A Group is one cgroup on it: Read returns its
// Values, and Apply writes a change, verifies it, and restores the values before the change after an error. Values of both
// versions have the same form; a Layout translates them. The package knows nothing of classes, and takes no locks.
package iocgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
)

var (
	// ErrNotEnabled means that the io controller is not enabled in a cgroup.
	ErrNotEnabled = errors.New("the io controller is not enabled")
	// ErrNotApplied means that a cgroup does not have the values that were written to it.
	ErrNotApplied = errors.New("the kernel did not apply the values")
)

// Group is the cgroup of a container or pod, in the hierarchy with the io controller. Machine names disks in errors, and has the
// weight files.
type Group struct {
	Host    FS
	Machine Machine
	Version int // of the cgroup
	Layout  Layout
	Dir     string
}

// Read returns the limits of a cgroup, and the settings in the given files.
func (g Group) Read(files []File) (Values, error) {
	state := Values{}
	for i, file := range g.Layout.Files(files) {
		if g.Machine.CannotLimit && !slices.Contains(files, File(strings.TrimSuffix(file, "_device"))) {
			continue
		}
		data, err := g.Host.ReadFile(g.Dir + "/" + file)
		switch {
		case errors.Is(err, fs.ErrNotExist) && i == 0:
			return state, g.missing(err)
		case errors.Is(err, fs.ErrNotExist):
			continue // the module with these settings was unloaded after the inspection
		case err != nil:
			return state, err
		}

		if err := g.Layout.Parse(state, file, data); err != nil {
			return state, fmt.Errorf("%s: %w", path.Join(g.Dir, file), err)
		}
	}
	return state, nil
}

// Apply writes those settings of a change that the cgroup lacks (`rest`), and verifies the whole change. On an error it
// restores the previous values (`state`).
func (g Group) Apply(rest, state, change Values) error {
	err := g.writeAll(rest)
	if err == nil {
		err = g.verify(change)
	}
	if err == nil {
		return nil
	}

	if undoErr := g.undo(rest, state); undoErr != nil {
		return errors.Join(err, fmt.Errorf("restore the previous values: %w", undoErr))
	}
	return err
}

func (g Group) writeAll(change Values) error {
	for _, w := range g.Layout.Writes(change) {
		if err := g.Write(w); err != nil {
			return err
		}
	}
	return nil
}

// undo restores the values in the parameter `state`, even if only a part of the change was written. It continues after a failed write.
func (g Group) undo(change, state Values) error {
	now, err := g.Read(g.Machine.FilesOf(change))
	if err != nil {
		return err
	}

	var failed []error
	for _, w := range g.Layout.Writes(change.undo(state).Remaining(now)) {
		failed = append(failed, g.Write(w))
	}
	return errors.Join(failed...)
}

func (g Group) verify(change Values) error {
	state, err := g.Read(g.Machine.FilesOf(change))
	if err != nil {
		return err
	}

	var missing []string
	for _, w := range g.Layout.Writes(change.Remaining(state)) {
		missing = append(missing, fmt.Sprintf("%s %q", w.File, w.Data))
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: missing after the write: %s", ErrNotApplied, strings.Join(missing, ", "))
	}
	return nil
}

// Write does one write. If the write fails, it adds the meaning of the kernel's errno, and the remedy, to the error.
func (g Group) Write(w Write) error {
	err := g.Host.WriteFile(g.Dir+"/"+w.File, []byte(w.Data))
	if err == nil {
		return nil
	}

	hint := ""
	dev, parseErr := ParseDevice(strings.Fields(w.Data)[0])
	switch {
	case errors.Is(err, syscall.ENODEV) && parseErr == nil:
		hint = fmt.Sprintf(": device %s is gone or is not a whole disk; retry in a few seconds, after the next inspection of the disks",
			g.Machine.DiskName(dev))
	case errors.Is(err, syscall.EOPNOTSUPP) && parseErr == nil:
		hint = fmt.Sprintf(": weights are no longer enabled on device %s; retry in a few seconds; %s",
			g.Machine.DiskName(dev), WeightRemedy(g.Machine.Version))
	}
	return fmt.Errorf("write %q to %s: %w%s", w.Data, w.File, err, hint)
}

// missing explains why a cgroup has no files of the io controller. The error names the ancestor that does not enable
// the controller.
func (g Group) missing(err error) error {
	if _, procsErr := g.Host.ReadFile(path.Join(g.Dir, "cgroup.procs")); errors.Is(procsErr, fs.ErrNotExist) {
		return fmt.Errorf("cgroup %s is gone: %w", g.Dir, err)
	}

	below, found := strings.CutPrefix(g.Dir, g.Machine.Root+"/")
	if g.Machine.Version != 2 || !found {
		return fmt.Errorf("%w in %s: %w", ErrNotEnabled, g.Dir, err)
	}

	ancestor := g.Machine.Root
	for name := range strings.SplitSeq(below, "/") {
		file := path.Join(ancestor, "cgroup.subtree_control")
		data, readErr := g.Host.ReadFile(file)
		if readErr == nil && !slices.Contains(strings.Fields(string(data)), "io") {
			return fmt.Errorf("%w in %s: %s lacks io; run: echo +io > %s", ErrNotEnabled, g.Dir, file, file)
		}
		ancestor = path.Join(ancestor, name)
	}
	return fmt.Errorf("%w in %s: %w", ErrNotEnabled, g.Dir, err)
}
