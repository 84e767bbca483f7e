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
	// ErrNotApplied means that a cgroup does not have the values that were written to it.
	ErrNotApplied = errors.New("the kernel did not apply the values")
)

// Enforce implements classes.Backend. It writes those values of the class that the cgroup lacks, and verifies them by
// reading them back.
func (b *Backend) Enforce(ctx context.Context, target classes.Holder, from, to string) error {
	return b.enforce(ctx, target, from, to, group.read)
}

var _ classes.ObservedEnforcer = (*Backend)(nil)

// reading is what Observe has read from a cgroup: the limits, and the weights in some of the weight files.
type reading struct {
	state   values
	weights []weightFile
}

// EnforceObserved implements classes.ObservedEnforcer. It takes the values before the change from the observation, and reads
// the values only after the change.
func (b *Backend) EnforceObserved(ctx context.Context, target classes.Holder, observed classes.Observation, from, to string) error {
	seen, ok := observed.Read.(*reading)
	if !ok {
		return b.Enforce(ctx, target, from, to)
	}
	return b.enforce(ctx, target, from, to, func(g group, weights []weightFile) (values, error) {
		unread := func(file weightFile) bool { return !slices.Contains(seen.weights, file) }
		if slices.ContainsFunc(weights, unread) {
			return g.read(weights) // the classes were changed after the observation
		}
		return seen.state, nil
	})
}

func (b *Backend) enforce(
	ctx context.Context, target classes.Holder, from, to string, read func(group, []weightFile) (values, error),
) error {
	s := b.live.Load()
	change, known, err := s.change(from, to)
	if err != nil {
		return err
	}
	if !target.Starting {
		change = s.named.changeTo(change)
	}
	if len(change) == 0 && known {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("enforce class %q: %w", to, err)
	}

	if b.pods != nil {
		defer b.pods.lock(target)()
	}
	group, err := b.open(s, target)
	if err != nil {
		return err
	}
	weights := s.machine.weightsOf(change)
	if !known {
		weights = s.machine.weightFiles
	}
	state, err := read(group, weights)
	if errors.Is(err, ErrNotEnabled) && change.clearsOnly() {
		return nil // nothing limits the target
	}
	if err != nil {
		return fmt.Errorf("read the values of class %q back: %w", to, err)
	}

	if !known {
		change = state.changeTo(change) // a former run of this program knew the class, and may have set any of the values
	}
	if b.pods != nil {
		change = b.pods.tighten(b.pods.finder(b.opts.FS, target), target, b.resource, change, state)
	}
	rest := change.remaining(state)
	if len(rest) == 0 {
		return nil
	}
	if s.byRuntime(b.scope) {
		b.log.Info("writing values that the runtime did not set", "class", to, "cgroup", group.dir)
	}
	if err := group.apply(rest, state, change); err != nil {
		return fmt.Errorf("enforce class %q in %s: %w", to, group.dir, err)
	}
	return nil
}

type group struct {
	host    FS
	machine machine
	layout  layout
	dir     string
}

func (b *Backend) open(s *snapshot, target classes.Holder) (group, error) {
	dir, version, err := b.opts.Tree.IODir(target)
	if err != nil {
		return group{}, fmt.Errorf("find the cgroup: %w", err)
	}
	return group{host: b.opts.FS, machine: s.machine, layout: layoutOf(version), dir: dir}, nil
}

// read returns the limits of a cgroup, and the weights in the given files.
func (g group) read(weights []weightFile) (values, error) {
	state := values{}
	for i, file := range g.layout.files(weights) {
		if g.machine.cannotLimit && !slices.Contains(weights, weightFile(strings.TrimSuffix(file, "_device"))) {
			continue
		}
		data, err := g.host.ReadFile(path.Join(g.dir, file))
		switch {
		case errors.Is(err, fs.ErrNotExist) && i == 0:
			return state, g.missing(err)
		case errors.Is(err, fs.ErrNotExist):
			continue // the scheduler with these weights was unloaded after the inspection
		case err != nil:
			return state, err
		}

		if err := g.layout.parse(state, file, data); err != nil {
			return state, fmt.Errorf("%s: %w", path.Join(g.dir, file), err)
		}
	}
	return state, nil
}

// apply writes those settings of a change that the cgroup lacks (rest), and verifies the whole change. On an error it
// restores the previous values (state).
func (g group) apply(rest, state, change values) error {
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

func (g group) writeAll(change values) error {
	for _, w := range g.layout.writes(change) {
		if err := g.write(w); err != nil {
			return err
		}
	}
	return nil
}

// undo restores the values in the parameter `state`, even if only a part of the change was written. It continues after a failed write.
func (g group) undo(change, state values) error {
	now, err := g.read(g.machine.weightsOf(change))
	if err != nil {
		return err
	}

	var failed []error
	for _, w := range g.layout.writes(change.undo(state).remaining(now)) {
		failed = append(failed, g.write(w))
	}
	return errors.Join(failed...)
}

func (g group) verify(change values) error {
	state, err := g.read(g.machine.weightsOf(change))
	if err != nil {
		return err
	}

	var missing []string
	for _, w := range g.layout.writes(change.remaining(state)) {
		missing = append(missing, fmt.Sprintf("%s %q", w.file, w.data))
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: missing after the write: %s", ErrNotApplied, strings.Join(missing, ", "))
	}
	return nil
}

// write does one write. If the write fails, it adds the meaning of the kernel's errno, and the remedy, to the error.
func (g group) write(w write) error {
	err := g.host.WriteFile(path.Join(g.dir, w.file), []byte(w.data))
	if err == nil {
		return nil
	}

	hint := ""
	dev, parseErr := parseDevice(strings.Fields(w.data)[0])
	switch {
	case errors.Is(err, syscall.ENODEV) && parseErr == nil:
		hint = fmt.Sprintf(": device %s is gone or is not a whole disk; retry in a few seconds, after the next inspection of the disks",
			g.machine.diskName(dev))
	case errors.Is(err, syscall.EOPNOTSUPP) && parseErr == nil:
		hint = fmt.Sprintf(": weights are no longer enabled on device %s; retry in a few seconds; %s",
			g.machine.diskName(dev), weightRemedy(g.machine.version))
	}
	return fmt.Errorf("write %q to %s: %w%s", w.data, w.file, err, hint)
}

// missing explains why a cgroup has no files of the io controller. The error names the ancestor that does not enable
// the controller.
func (g group) missing(err error) error {
	if _, procsErr := g.host.ReadFile(path.Join(g.dir, "cgroup.procs")); errors.Is(procsErr, fs.ErrNotExist) {
		return fmt.Errorf("cgroup %s is gone: %w", g.dir, err)
	}

	below, found := strings.CutPrefix(g.dir, g.machine.root+"/")
	if g.machine.version != 2 || !found {
		return fmt.Errorf("%w in %s: %w", ErrNotEnabled, g.dir, err)
	}

	ancestor := g.machine.root
	for name := range strings.SplitSeq(below, "/") {
		file := path.Join(ancestor, "cgroup.subtree_control")
		data, readErr := g.host.ReadFile(file)
		if readErr == nil && !slices.Contains(strings.Fields(string(data)), "io") {
			return fmt.Errorf("%w in %s: %s lacks io; run: echo +io > %s", ErrNotEnabled, g.dir, file, file)
		}
		ancestor = path.Join(ancestor, name)
	}
	return fmt.Errorf("%w in %s: %w", ErrNotEnabled, g.dir, err)
}
