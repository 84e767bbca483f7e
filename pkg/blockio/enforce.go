// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

var (
	// ErrNotEnabled means that the io controller is not enabled in a cgroup.
	ErrNotEnabled = errors.New("the io controller is not enabled")
	// ErrNotTaken means that a cgroup does not have the values that were written to it.
	ErrNotTaken = errors.New("the kernel did not take the values")
)

// Enforce implements classes.Backend: what the cgroup lacks of the class is written, and read back.
func (b *Backend) Enforce(ctx context.Context, target classes.Holder, from, to string) error {
	s := b.live.Load()
	change, known, err := s.change(from, to)
	if err != nil {
		return err
	}
	if !target.Starting {
		change = s.named.changeTo(change)
	}
	if change.isEmpty() && known {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("enforce class %q: %w", to, err)
	}
	group, err := b.open(s, target)
	if err != nil {
		return err
	}
	state, err := group.read()
	if errors.Is(err, ErrNotEnabled) && change.clearsOnly() {
		return nil // nothing limits it
	}
	if err != nil {
		return fmt.Errorf("read the values of class %q back: %w", to, err)
	}
	if !known {
		// A class that a former run of this process knew: what it set is what there is.
		change = state.changeTo(change)
	}
	return group.apply(change, state, to)
}

// group is the cgroup of a target.
type group struct {
	host    FS
	machine machine
	layout  layout
	dir     string
	// byRuntime: the runtime should have set the values.
	byRuntime bool
	backend   *Backend
}

func (b *Backend) open(s *snapshot, target classes.Holder) (group, error) {
	dir, version, err := b.opts.Tree.IODir(target)
	if err != nil {
		return group{}, fmt.Errorf("find the cgroup: %w", err)
	}
	return group{host: b.opts.FS, machine: s.machine, layout: layoutOf(version), dir: dir,
		byRuntime: s.byRuntime(b.scope), backend: b}, nil
}

// read returns what the cgroup has.
func (g group) read() (values, error) {
	state := newValues()
	for i, file := range g.layout.files(g.machine.weightFiles) {
		data, err := g.host.ReadFile(path.Join(g.dir, file))
		switch {
		case errors.Is(err, fs.ErrNotExist) && i == 0:
			return state, g.missing(err)
		case errors.Is(err, fs.ErrNotExist):
			continue // weights were looked for on the machine, and may have been unloaded since
		case err != nil:
			return state, err
		}
		if err := g.layout.parse(state, file, data); err != nil {
			return state, fmt.Errorf("%s: %w", g.dir, err)
		}
	}
	return state, nil
}

// apply makes a change, all of it or, on any error, nothing.
func (g group) apply(change, state values, class string) error {
	rest := change.remaining(state)
	if rest.isEmpty() {
		return nil
	}
	if g.byRuntime {
		g.backend.log.Info("writing values that the runtime did not set", "class", class, "cgroup", g.dir)
	}
	err := g.writeAll(rest)
	if err == nil {
		err = g.verify(change)
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("enforce class %q in %s: %w", class, g.dir, err)
	if undoErr := g.undo(rest, state); undoErr != nil {
		err = errors.Join(err, fmt.Errorf("bring back what was there before: %w", undoErr))
	}
	return err
}

func (g group) writeAll(change values) error {
	for _, write := range g.layout.writes(change) {
		if err := g.host.WriteFile(path.Join(g.dir, write.file), []byte(write.data)); err != nil {
			return g.explain(write, err)
		}
	}
	return nil
}

// undo brings back what a change, perhaps made in part, altered, as far as it can.
func (g group) undo(change, state values) error {
	now, err := g.read()
	if err != nil {
		return err
	}
	var failed []error
	for _, write := range g.layout.writes(change.undo(state).remaining(now)) {
		if err := g.host.WriteFile(path.Join(g.dir, write.file), []byte(write.data)); err != nil {
			failed = append(failed, g.explain(write, err))
		}
	}
	return errors.Join(failed...)
}

func (g group) verify(change values) error {
	state, err := g.read()
	if err != nil {
		return err
	}
	missing := change.remaining(state)
	if missing.isEmpty() {
		return nil
	}
	var lines []string
	for _, write := range g.layout.writes(missing) {
		lines = append(lines, fmt.Sprintf("%s %q", write.file, write.data))
	}
	return fmt.Errorf("%w: not there after writing: %s", ErrNotTaken, strings.Join(lines, ", "))
}

// explain adds to an errno what it means here.
func (g group) explain(write write, err error) error {
	hint := ""
	dev, parseErr := parseDevice(strings.Fields(write.data)[0])
	switch {
	case errors.Is(err, syscall.ENODEV) && parseErr == nil:
		hint = fmt.Sprintf(": device %s is gone or is not a whole disk; try again in some seconds, when the machine has been looked at", g.machine.diskName(dev))
	case errors.Is(err, syscall.EOPNOTSUPP) && parseErr == nil:
		hint = fmt.Sprintf(": device %s no longer acts on weights; try again in some seconds, or %s",
			g.machine.diskName(dev), weightRemedy(g.machine.version))
	}
	return fmt.Errorf("write %q to %s: %w%s", write.data, write.file, err, hint)
}

// missing says why a cgroup has no files of the io controller: which of its ancestors does not hand it on.
func (g group) missing(err error) error {
	if _, procsErr := g.host.ReadFile(path.Join(g.dir, "cgroup.procs")); errors.Is(procsErr, fs.ErrNotExist) {
		return fmt.Errorf("cgroup %s is gone: %w", g.dir, err)
	}
	below, found := strings.CutPrefix(g.dir, g.machine.root+"/")
	if g.machine.version != 2 || !found {
		return fmt.Errorf("%w in %s: %w", ErrNotEnabled, g.dir, err)
	}
	ancestor := g.machine.root
	for _, name := range strings.Split(below, "/") {
		file := path.Join(ancestor, "cgroup.subtree_control")
		data, readErr := g.host.ReadFile(file)
		if readErr == nil && !slices.Contains(strings.Fields(string(data)), "io") {
			return fmt.Errorf("%w in %s: %s lacks it; enable it with: echo +io > %s", ErrNotEnabled, g.dir, file, file)
		}
		ancestor = path.Join(ancestor, name)
	}
	return fmt.Errorf("%w in %s: %w", ErrNotEnabled, g.dir, err)
}
