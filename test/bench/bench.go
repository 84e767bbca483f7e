// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

// results has the measured durations. The first key is the operation, which is a row of the printed table. The second key
// is the name of the measured plugin.
type results map[string]map[string][]time.Duration

func (r results) add(what string, s *side, took time.Duration) {
	if r[what] == nil {
		r[what] = map[string][]time.Duration{}
	}
	r[what][s.name] = append(r[what][s.name], took)
}

// These are the names of the measured plugins, and of the operations.
const (
	ours      = "qos-nri-plugin"
	idleOne   = "idle"
	idleAgain = "idle-again"
	idlePlain = "idle-plain" // a plugin that does not validate containers

	createAsked   = "create, class requested"
	createNothing = "create, nothing requested"
	startAsked    = "start, class requested"
	startNothing  = "start, nothing requested"
	synchronize   = "synchronize"

	// creation is the life of a container: its creation, start, stop and removal.
	creation = "create, start, stop and remove a container"
	rest     = "rest"
)

// settling is how long plugins may take to free the memory of their synchronization.
const settling = 3 * time.Second

func bench(ctx context.Context, o options) error {
	slog.SetLogLoggerLevel(slog.LevelError)
	dir, err := os.MkdirTemp("", "qb") // short, for sockets
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	sides, err := newSides(ctx, o, dir)
	defer func() {
		for _, s := range sides {
			_ = s.stop()
		}
	}()
	if err != nil {
		return err
	}
	all := results{}
	if err := measureCreations(ctx, o, sides, all); err != nil {
		return err
	}
	if err := measureSynchronizations(ctx, o, sides, all); err != nil {
		return err
	}
	pause.For(ctx, settling)
	if err := measureCPU(sides, rest, 1, func() error { pause.For(ctx, o.rest); return nil }); err != nil {
		return err
	}
	return report(os.Stdout, o, sides, all)
}

func newSides(ctx context.Context, o options, dir string) (sides []*side, err error) {
	binary, err := build(ctx, o, dir)
	if err != nil {
		return nil, err
	}
	files := filepath.Join(dir, "classes.yaml")
	if err := os.WriteFile(files, []byte(classFile), 0o600); err != nil {
		return nil, err
	}
	plugin := func(dir, socket, root string) *exec.Cmd {
		return exec.Command(binary, "run", "--config", files, "--nri-socket", socket, "--host-root", root, "--metrics-address=",
			"--api-socket", filepath.Join(dir, "qos.sock"), "--state-dir", filepath.Join(dir, "state"), "--mount-resctrl=false")
	}
	for _, name := range []string{ours, idleOne, idleAgain, idlePlain} {
		command := plugin
		if name != ours {
			self, err := copySelf(filepath.Join(dir, "bin", name))
			if err != nil {
				return sides, err
			}
			command = func(_, socket, _ string) *exec.Cmd {
				return exec.Command(self, "--idle", socket, "--plain="+strconv.FormatBool(name == idlePlain))
			}
		}
		s, err := newSide(ctx, dir, name, command)
		if err != nil {
			return sides, fmt.Errorf("start %s: %w", name, err)
		}
		sides = append(sides, s)
	}
	return sides, nil
}

// copySelf copies this program, so that each idle plugin runs a file of its own. Processes that run the same file
// would share its code in the CPU's caches.
func copySelf(path string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return "", err
	}
	return path, errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, program, 0o700))
}

// build builds the plugin like a release.
func build(ctx context.Context, o options, dir string) (string, error) {
	if o.plugin != "" {
		return o.plugin, nil
	}
	binary := filepath.Join(dir, "bin", "qos-nri-plugin")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "./cmd/qos-nri-plugin")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the plugin: %w\n%s", err, text)
	}
	return binary, nil
}

func measureCreations(ctx context.Context, o options, sides []*side, all results) error {
	for _, s := range sides {
		if err := s.fill(ctx, 0, o.live); err != nil {
			return err
		}
	}
	for range o.creations / 10 { // to warm up
		if err := createOnce(ctx, sides, results{}); err != nil {
			return err
		}
	}
	return measureCPU(sides, creation, 2*o.creations, func() error {
		for range o.creations {
			if err := createOnce(ctx, sides, all); err != nil {
				return err
			}
		}
		return nil
	})
}

// createOnce creates two containers on each side: one that requests nothing, and one that requests a class.
func createOnce(ctx context.Context, sides []*side, all results) error {
	for request, rows := range [][2]string{{createNothing, startNothing}, {createAsked, startAsked}} {
		for _, s := range shuffled(sides) {
			took, err := s.create(ctx, request)
			if err != nil {
				return err
			}
			all.add(rows[0], s, took["CreateContainer"])
			all.add(rows[1], s, took["StartContainer"])
		}
	}
	return nil
}

func measureSynchronizations(ctx context.Context, o options, sides []*side, all results) error {
	for _, s := range sides {
		if err := s.fill(ctx, o.live, o.many); err != nil {
			return err
		}
	}
	return measureCPU(sides, synchronize, o.synchronizations, func() error {
		for range o.synchronizations {
			for _, s := range shuffled(sides) {
				took, err := s.synchronize(ctx)
				if err != nil {
					return errors.Join(fmt.Errorf("synchronize %s", s.name), err)
				}
				all.add(synchronize, s, took)
			}
		}
		return nil
	})
}

// measureCPU measures the CPU time that the process of each side uses for one call. The function do makes the given
// number of calls on each side.
func measureCPU(sides []*side, what string, calls int, do func() error) error {
	for _, s := range sides {
		before, err := s.cpuTime()
		if err != nil {
			return err
		}
		s.cpu[what] = -before
	}
	if err := do(); err != nil {
		return err
	}
	for _, s := range sides {
		after, err := s.cpuTime()
		if err != nil {
			return err
		}
		s.cpu[what] = (s.cpu[what] + after) / time.Duration(calls)
	}
	return nil
}

// shuffled returns the sides in random order, so that a side does not always follow the same side.
func shuffled(sides []*side) []*side {
	order := slices.Clone(sides)
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}
