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
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/pause"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime/hostdir"
)

// results has the measured durations. The first key is the operation, which is a row of the printed table. The second
// key is the name of the plugin.
type results map[string]map[string][]time.Duration

func (r results) add(what string, s *side, took time.Duration) {
	if r[what] == nil {
		r[what] = map[string][]time.Duration{}
	}
	r[what][s.name] = append(r[what][s.name], took)
}

// These are the names of the measured plugins, and of the operations.
const (
	ours       = "qos-nri-plugin"
	idleOne    = "idle"
	idleAgain  = "idle-again"
	idlePlain  = "idle-plain" // a plugin that does not validate containers
	bare       = "bare v2"    // a plugin that makes only the system calls of the hook StartContainer
	oursLegacy = "v1"         // qos-nri-plugin on a machine with cgroup v1
	bareLegacy = "bare v1"
	monitoring = "monitors" // qos-nri-plugin that monitors all containers
	everything = "all-on"   // qos-nri-plugin that also records the history and checks what classes promise

	createAsked   = "create, class requested"
	createNothing = "create, nothing requested"
	createSix     = "create, class of six properties requested"
	startAsked    = "start, class requested"
	startNothing  = "start, nothing requested"
	startSix      = "start, class of six properties requested"
	synchronize   = "synchronize"

	// creation is the life of a container: its creation, start, stop and removal.
	creation = "create, start, stop and remove a container"
	rest     = "rest"
	scrape   = "scrape of the metrics of all monitored containers"
)

// settling is the longest time that plugins may take to free the memory of their synchronization.
const settling = 3 * time.Second

// scrapes is the number of scrapes of the plugin that monitors containers.
const scrapes = 10

// measurements are the results of a run.
type measurements struct {
	sides   map[string]*side
	waits   results
	v1, v2  hookCosts
	reloads []overhead
	// `early` and `late` are the footprints of the plugin after the first tenth of the pods that come and go, and after
	// the last one.
	early, late footprint
}

func bench(ctx context.Context, o options) error {
	slog.SetLogLoggerLevel(slog.LevelError)
	dir, err := os.MkdirTemp("", "qb") // short, for sockets
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	m := measurements{sides: map[string]*side{}, waits: results{}}
	defer func() {
		for _, s := range m.sides {
			_ = s.stop()
		}
	}()

	if m.reloads, err = measureReloads(ctx, o, dir); err != nil {
		return err
	}

	if err := m.start(ctx, o, dir); err != nil {
		return err
	}

	if err := m.measure(ctx, o); err != nil {
		return err
	}

	return m.report(o)
}

// measure measures the plugins' processes.
func (m *measurements) measure(ctx context.Context, o options) (err error) {
	if err := m.measureCreations(ctx, o); err != nil {
		return err
	}

	if err := m.measureSynchronizations(ctx, o); err != nil {
		return err
	}

	pause.For(ctx, settling)
	resting := m.of(ours, idleOne, monitoring, everything)
	if err := measureCPU(resting, rest, 1, func() error { pause.For(ctx, o.rest); return ctx.Err() }); err != nil {
		return err
	}

	for _, s := range resting {
		if s.now, s.most, err = s.memory(); err != nil {
			return err
		}
	}

	if err := measureCPU(m.of(monitoring), scrape, scrapes, func() error { return m.scrape(ctx, o) }); err != nil {
		return err
	}

	m.early, m.late, err = churn(ctx, o, m.sides[ours])
	return err
}

// scrape reads the metrics of the plugin that monitors containers. The plugin measures at most once a second.
func (m *measurements) scrape(ctx context.Context, o options) error {
	for range scrapes {
		if err := m.sides[monitoring].scrape(ctx, o.many); err != nil {
			return err
		}
		pause.For(ctx, time.Second)
	}
	return ctx.Err()
}

// of returns sides by their names.
func (m *measurements) of(names ...string) (sides []*side) {
	for _, name := range names {
		sides = append(sides, m.sides[name])
	}
	return sides
}

// start starts all plugins.
func (m *measurements) start(ctx context.Context, o options, dir string) (err error) {
	if m.v1, err = costsOfHooks(ctx, filepath.Join(dir, "hooks-v1"), true); err != nil {
		return err
	}

	if m.v2, err = costsOfHooks(ctx, filepath.Join(dir, "hooks-v2"), false); err != nil {
		return err
	}

	kinds, err := m.kinds(ctx, o, dir)
	if err != nil {
		return err
	}

	for _, k := range kinds {
		s, err := newSide(ctx, dir, k)
		if err != nil {
			return fmt.Errorf("start %s: %w", k.name, err)
		}
		m.sides[k.name] = s
	}

	return nil
}

// kinds returns the descriptions of all sides.
func (m *measurements) kinds(ctx context.Context, o options, dir string) ([]kind, error) {
	binary, err := build(ctx, o, dir)
	if err != nil {
		return nil, err
	}

	legacy := hostdir.Options{Legacy: true}
	return []kind{
		pluginKind(ours, binary, classFile, hostdir.Options{}, ""),
		pluginKind(oursLegacy, binary, classFile, legacy, ""),
		pluginKind(monitoring, binary, classFile+monitoringFile, hostdir.Options{RMIDs: 2 * o.many}, metricsAddress),
		pluginKind(everything, binary, classFile+monitoringFile, hostdir.Options{RMIDs: 2 * o.many}, "",
			"--held-interval", "15s", "--history-interval", "15s"),
		idleKind(idleOne, hostdir.Options{}, nil),
		idleKind(idleAgain, hostdir.Options{}, nil),
		idleKind(idlePlain, hostdir.Options{}, nil, "--plain"),
		idleKind(bare, hostdir.Options{}, &m.v2.start),
		idleKind(bareLegacy, legacy, &m.v1.start),
	}, nil
}

// pluginKind describes a side with qos-nri-plugin.
func pluginKind(name, binary, classFile string, host hostdir.Options, metrics string, flags ...string) kind {
	return kind{name, host, func(dir, socket, root string) (*exec.Cmd, error) {
		config := filepath.Join(dir, "classes.yaml")
		args := append([]string{"run", "--config", config, "--nri-socket", socket, "--host-root", root, "--metrics-address", metrics,
			"--api-socket", filepath.Join(dir, "qos.sock"), "--state-dir", filepath.Join(dir, "state"), "--mount-resctrl=false"}, flags...)
		return exec.Command(binary, args...), os.WriteFile(config, []byte(classFile), 0o600)
	}}
}

// idleKind describes a side with an idle plugin. If the parameter `calls` is not nil, the plugin makes these system calls.
func idleKind(name string, host hostdir.Options, calls *startCalls, flags ...string) kind {
	return kind{name, host, func(dir, socket, root string) (*exec.Cmd, error) {
		self, err := copySelf(filepath.Join(dir, "idle-plugin"))
		if err != nil {
			return nil, err
		}
		flags := append([]string{"--idle", socket}, flags...)
		if calls != nil {
			file := filepath.Join(dir, "calls.json")
			flags, err = append(flags, "--calls", file), calls.write(file, root)
		}
		return exec.Command(self, flags...), err
	}}
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
	return path, os.WriteFile(path, program, 0o700)
}

// build builds the plugin like a release.
func build(ctx context.Context, o options, dir string) (string, error) {
	if o.plugin != "" {
		return o.plugin, nil
	}
	binary := filepath.Join(dir, "bin", "qos-nri-plugin")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", binary, "./cmd/qos-nri-plugin")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the plugin: %w\n%s", err, text)
	}
	return binary, nil
}

func (m *measurements) measureCreations(ctx context.Context, o options) error {
	sides := m.of(ours, idleOne, idleAgain, idlePlain, bare, oursLegacy, bareLegacy)
	for _, s := range sides {
		if err := errors.Join(s.runPods(ctx), s.fill(ctx, 0, o.live)); err != nil {
			return err
		}
	}

	for range o.creations / 10 { // to warm up
		if err := createOnce(ctx, sides, results{}); err != nil {
			return err
		}
	}

	err := measureCPU(sides, creation, 2*o.creations, func() error {
		for range o.creations {
			if err := createOnce(ctx, sides, m.waits); err != nil {
				return err
			}
		}
		return nil
	})
	for range o.creations {
		if err == nil { // a class of six properties needs cgroup v2
			err = createOn(ctx, m.of(ours, idleOne, idleAgain, idlePlain), m.waits, 2, [2]string{createSix, startSix})
		}
	}
	return err
}

// createOnce creates two containers on each side: one that requests nothing, and one that requests a class.
func createOnce(ctx context.Context, sides []*side, all results) error {
	for request, rows := range [][2]string{{createNothing, startNothing}, {createAsked, startAsked}} {
		if err := createOn(ctx, sides, all, request, rows); err != nil {
			return err
		}
	}
	return nil
}

// createOn creates a container on each side, in the pod whose request is number `request` of requests(). The times of
// the creation and of the start belong to the two rows.
func createOn(ctx context.Context, sides []*side, all results, request int, rows [2]string) error {
	for _, s := range shuffled(sides) {
		took, err := s.create(ctx, request)
		if err != nil {
			return err
		}
		all.add(rows[0], s, took["CreateContainer"])
		all.add(rows[1], s, took["StartContainer"])
	}
	return nil
}

func (m *measurements) measureSynchronizations(ctx context.Context, o options) error {
	sides := m.of(ours, idleOne, idleAgain, idlePlain)
	for _, s := range sides {
		if err := s.fill(ctx, o.live, o.many); err != nil {
			return err
		}
	}

	for _, s := range m.of(monitoring, everything) {
		if err := s.fill(ctx, 0, o.many); err != nil {
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
				m.waits.add(synchronize, s, took)
			}
		}
		return nil
	})
}

// measureCPU measures the CPU time that the process of each side uses for one call. The function `do` makes the given
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
