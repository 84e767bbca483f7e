// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulated is a node for the soak test. All parts run in this process: a simulated machine, the real runtime
// side of NRI, and the real agent.
package simulated

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/agent"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
	"github.com/qos-nri/qos-nri-plugin/test/soak/steps"
)

// repairInterval is the interval at which the plugin looks for drift. It is shorter than on a node, so that the soak
// tests more repairs.
const repairInterval = 2 * time.Second

// Site is a node with 12 ways of cache, and with disks that are added and removed. The RMIDs of removed groups are in
// limbo for some time.
type Site struct {
	*nriruntime.Runtime

	dir     string
	machine *sim.Machine
	oci     *refusing
	options agent.Options
	log     *slog.Logger
	hangups chan os.Signal
	rdt     resctrl.Spec
	// endDrain ends the goroutine of drain.
	endDrain func()

	// process is the process that was started last. It is nil after that process was ended. Only one goroutine uses it.
	process *process
	late    bool

	mu        sync.Mutex // guards the fields below
	disks     map[string]string
	strangers int
}

var _ interface {
	steps.Site
	steps.Disks
	steps.Faults
	steps.Others
	steps.Saboteur
} = (*Site)(nil)

// New makes a site in a directory of its own, with a runtime and without a plugin. Close removes it.
func New(log *slog.Logger) (*Site, error) {
	dir, err := os.MkdirTemp("", "soak") // the path of a socket must be short
	if err != nil {
		return nil, err
	}

	rdt := resctrl.IntelSpec()
	rdt.Unmounted, rdt.Limbo = true, true
	s := &Site{dir: dir, machine: sim.New(sim.Options{RDT: &rdt}), rdt: rdt, log: log, hangups: make(chan os.Signal, 1),
		disks: map[string]string{"vda": "254:0", "vdb": "254:16"}}
	s.oci = &refusing{Machine: s.machine}
	s.endDrain = drain(s.machine)
	// While no plugin runs, SIGHUP would otherwise end this process.
	signal.Notify(s.hangups, syscall.SIGHUP)
	// With NRI's default timeout of 2 s, the runtime could disconnect the plugin on a slow machine.
	adaptation.SetPluginRegistrationTimeout(time.Minute)
	adaptation.SetPluginRequestTimeout(time.Minute)
	if err := s.furnish(); err != nil {
		return nil, errors.Join(err, s.Close())
	}

	return s, nil
}

func (s *Site) furnish() error {
	path := func(name string) string { return filepath.Join(s.dir, name) }
	s.options = agent.DefaultOptions()
	s.options.Config, s.options.HostRoot, s.options.StateDir = path("classes.yaml"), path("host"), path("state")
	s.options.NRISocket, s.options.APISocket, s.options.MetricsAddress = path("cable.sock"), path("qos.sock"), ""
	s.options.Version, s.options.RepairInterval = "soak", repairInterval
	s.options.HeldInterval = time.Second
	bootID := path("host/proc/sys/kernel/random/boot_id")
	err := errors.Join(os.MkdirAll(filepath.Dir(bootID), 0o755), os.WriteFile(bootID, []byte("soak\n"), 0o600), s.makeForeign())
	if err != nil {
		return err
	}

	if err := s.machine.WriteFile("/sys/block/vda/queue/scheduler", []byte("bfq")); err != nil {
		return err
	}

	if s.Runtime, err = nriruntime.New(s.dir, nriruntime.Options{OCI: s.oci}); err != nil {
		return err
	}

	return s.Start()
}

// Close ends plugin and runtime, and removes all files.
func (s *Site) Close() error {
	var err error
	if s.process != nil {
		err = s.process.end()
	}
	if s.Runtime != nil {
		s.Stop()
	}
	signal.Stop(s.hangups)
	s.endDrain()
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Host implements steps.Site.
func (s *Site) Host() invariant.FS { return s.machine }

// Live implements steps.Site.
func (s *Site) Live(ctx context.Context) (invariant.Live, error) {
	s.machine.Cgroups().Writes() // discards the record of writes
	return invariant.LiveIn(s.Runtime)(ctx)
}

// Machine implements steps.Site.
func (s *Site) Machine() steps.Machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	closids := min(s.rdt.L2.CLOSIDs, s.rdt.L3.CLOSIDs, s.rdt.MB.CLOSIDs)
	m := steps.Machine{Ways: 12, Domains: []int{0, 1}, RMIDs: s.rdt.RMIDs - closids, Notices: repairInterval + time.Second, Weights: map[string]string{
		// For io.weight, KEP-2254 converts weights of 10 to 1000 into 1 to 10000.
		"io.bfq.weight": "default 400", "io.weight": "default 3940",
	}}
	for _, number := range s.disks {
		m.Disks = append(m.Disks, number)
	}
	return m
}

// RunPod implements steps.Runtime.
func (s *Site) RunPod(ctx context.Context, pod steps.Pod) (id string, err error) {
	return s.Runtime.RunPod(ctx, nriruntime.PodConfig{Name: pod.Name, UID: pod.UID, Annotations: pod.Annotations})
}

// CreateContainer implements steps.Runtime.
func (s *Site) CreateContainer(ctx context.Context, pod string, c steps.Container) (id string, err error) {
	config := nriruntime.ContainerConfig{Name: c.Name, Annotations: c.Annotations}
	if c.Device != "" {
		major, minor, err := s.machine.BlockDevice(c.Device)
		if err != nil {
			return "", err
		}
		config.Devices = []*api.LinuxDevice{{Path: c.Device, Type: "b", Major: int64(major), Minor: int64(minor)}}
	}
	return s.Runtime.CreateContainer(ctx, pod, config)
}

// ExitContainer implements steps.Runtime.
func (s *Site) ExitContainer(ctx context.Context, id string) error {
	_, err := s.Exit(ctx, id)
	return err
}

// Exec implements steps.Runtime.
func (s *Site) Exec(ctx context.Context, id string) error {
	_, err := s.Runtime.Exec(ctx, id)
	return err
}

// Fork implements steps.Runtime. The first process forks.
func (s *Site) Fork(_ context.Context, id string) error {
	c, err := s.Container(id)
	if err != nil {
		return err
	}
	_, err = s.machine.Fork(id, c.PID)
	return err
}

// Resize implements steps.Runtime.
func (s *Site) Resize(ctx context.Context, id string) error {
	shares := &api.LinuxCPU{Shares: api.UInt64(uint64(1024))}
	return s.UpdateContainer(ctx, id, &api.LinuxResources{Cpu: shares})
}

// RestartRuntime implements steps.Runtime.
func (s *Site) RestartRuntime(context.Context) error { return s.Restart() }

// WriteClasses implements steps.Plugin. It replaces the file atomically.
func (s *Site) WriteClasses(text string) error {
	next := filepath.Join(s.dir, "next")
	return errors.Join(os.WriteFile(next, []byte(text), 0o600), os.Rename(next, s.options.Config))
}

// Hangup implements steps.Plugin.
func (s *Site) Hangup() error { return syscall.Kill(os.Getpid(), syscall.SIGHUP) }

// StartPlugin implements steps.Plugin.
func (s *Site) StartPlugin(ctx context.Context) error {
	if s.process != nil {
		if !s.process.wasKilled() {
			return errors.New("the plugin runs already")
		}
		if err := s.StopPlugin(ctx); err != nil {
			return err
		}
	}
	process, err := startProcess(ctx, s.options, s.machine, s.Socket(), s.log)
	s.process = process
	return err
}

// StopPlugin implements steps.Plugin.
func (s *Site) StopPlugin(context.Context) error {
	if s.process == nil {
		return errors.New("the plugin does not run")
	}
	ending := s.process
	s.process = nil
	return ending.end()
}

// KillPlugin implements steps.Plugin. Kills are alternately right after and right before the selected write.
func (s *Site) KillPlugin(_ context.Context, at int) error {
	if s.process == nil {
		return errors.New("the plugin does not run")
	}
	s.late = !s.late
	s.process.host.kill(at, s.late)
	return nil
}

// PluginRuns implements steps.Plugin.
func (s *Site) PluginRuns() (bool, error) {
	if s.process == nil || s.process.wasKilled() {
		return false, nil
	}
	err := s.process.endedByItself()
	return err == nil, err
}

// API implements steps.Plugin.
func (s *Site) API() qosv1alpha1.NodeQOSClient {
	if s.process == nil {
		return nil
	}
	return s.process.api
}

// number returns the device number of the disk vd[a-z].
func number(letter int) string { return fmt.Sprintf("254:%d", 16*letter) }
