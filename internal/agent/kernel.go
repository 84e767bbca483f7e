// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sync/errgroup"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/node/reconcile"
	"github.com/qos-nri/qos-nri-plugin/internal/uevent"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// idleRotation is the interval at which the agent checks whether new class files select monitoring in turns.
const idleRotation = 5 * time.Second

// settling returns how long the agent waits before each repair that follows the addition or removal of a device, or the
// removal of a resctrl group. The first repair finds the device's file, and the later ones find the links that udev creates.
func settling() []time.Duration {
	return []time.Duration{100 * time.Millisecond, time.Second, 2 * time.Second}
}

// repair corrects drift periodically, after a disk was added or removed, and after a resctrl group was removed. It
// calls the function `watch` after each repair. It also begins the turns of containers that are monitored in turn.
func (a *Agent) repair(ctx context.Context, n *node.Node, changed <-chan struct{}, watch func()) error {
	repair, rotate := time.NewTicker(a.options.RepairInterval), time.NewTimer(idleRotation)
	defer repair.Stop()
	defer rotate.Stop()
	settle := newSettler(settling())
	defer settle.timer.Stop()

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			settle.begin()
		case <-settle.timer.C:
			n.Repair(ctx)
			watch()
			settle.next()
		case <-repair.C:
			n.Repair(ctx)
			watch()
		case <-rotate.C:
			n.Rotate(ctx)
			rotate.Reset(cmp.Or(n.RotateEvery(), idleRotation))
		}
	}
}

// followDisks listens for kernel events. When a disk was added or removed, followDisks signals this through the given
// channel. If kernel events are not available, the next periodic repair finds the disks.
func (a *Agent) followDisks(ctx context.Context, group *errgroup.Group, changed chan<- struct{}) {
	listener, err := uevent.Listen()
	if err != nil {
		a.warnOfDisks(err)
		return
	}

	group.Go(func() error {
		err := listener.Follow(ctx, "block", func() { signalTo(changed) })
		if err != nil {
			a.warnOfDisks(err)
		}
		return nil
	})
}

func (a *Agent) warnOfDisks(err error) {
	a.log.Warn("cannot receive the kernel's device events; only the periodic check finds new and removed disks", "every", a.options.RepairInterval, "error", err)
}

// signalTo sends a signal to a channel with a buffer of 1, unless a signal is already waiting there.
func signalTo(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// followGroups watches resctrl. It signals through `changed` when another program has removed a group of the plugin.
// CRI-O removes such groups at its start if it has an rdt_config_file. It calls `joined` with the class when a program
// has written into the file "tasks" of a group of the plugin. A runtime does this for exec'd processes: it puts them
// into the group of the class with which the container was created. The caller must call the function `watch` whenever
// resctrl may have been mounted. Without inotify, only the periodic checks find removed groups and these processes.
func (a *Agent) followGroups(ctx context.Context, group *errgroup.Group, changed chan<- struct{}, joined func(class string)) (watch func()) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		a.log.Warn("cannot watch resctrl; only the periodic checks find removed groups, and processes in the group of a former class",
			"every", a.options.RepairInterval, "error", err)
		return func() {}
	}

	group.Go(func() error {
		defer func() { _ = watcher.Close() }()
		for {
			select {
			case <-ctx.Done():
				return nil
			case event := <-watcher.Events:
				followGroup(watcher, event, changed, joined)
			case err := <-watcher.Errors:
				a.log.Debug("events of resctrl may have been lost", "error", err)
				signalTo(changed)
			}
		}
	})
	// An error means that resctrl is not mounted, or that the limit of watches is reached. The periodic checks need no watch.
	watch = func() {
		root := filepath.Join(a.options.HostRoot, resctrl.DefaultMountPoint)
		_ = watcher.Add(root)
		dirs, _ := filepath.Glob(filepath.Join(root, groups.Prefix+"*"))
		for _, dir := range dirs {
			_ = watcher.Add(dir)
		}
	}
	watch()
	return watch
}

// followGroup handles an event of resctrl or of a group in it.
func followGroup(watcher *fsnotify.Watcher, event fsnotify.Event, changed chan<- struct{}, joined func(class string)) {
	dir, name := filepath.Split(event.Name)
	group := filepath.Base(dir)
	switch {
	case event.Has(fsnotify.Write) && name == "tasks" && groups.IsManaged(group):
		joined(groups.ClassOf(group))
	case !groups.IsManaged(name):
	case event.Has(fsnotify.Remove):
		signalTo(changed)
	case event.Has(fsnotify.Create):
		_ = watcher.Add(event.Name) // the next call of watch tries again
	}
}

// settler is a timer that fires several times after an event, once after each of its delays in turn.
type settler struct {
	timer  *time.Timer
	delays []time.Duration
	at     int // index of the current delay; len(delays) if no delay runs
}

func newSettler(delays []time.Duration) *settler {
	s := &settler{timer: time.NewTimer(time.Hour), delays: delays, at: len(delays)}
	s.timer.Stop()
	return s
}

// begin is called at each event. If no delay runs, it starts the first delay. If the third or a later delay runs, it
// restarts the second delay. During the first two delays it changes nothing, so repeated events do not postpone the
// timer or make it fire all the time.
func (s *settler) begin() {
	switch {
	case s.at == len(s.delays):
		s.at = 0
	case s.at > 1:
		s.at = 1
	default:
		return // the first or second delay runs
	}
	s.timer.Reset(s.delays[s.at])
}

func (s *settler) next() {
	if s.at++; s.at < len(s.delays) {
		s.timer.Reset(s.delays[s.at])
	}
}

// processTimes returns a function that returns the start time of a process of the host, in clock ticks after the host's
// boot. processTimes returns nil if /proc does not show the host's PID namespace, in which the runtime reports PIDs. It
// recognizes that namespace by the kernel thread kthreadd.
func processTimes(host hostfs.Root) func(pid int) (at uint64, exists bool) {
	threads, err := host.ReadFile("/proc/2/stat")
	if err != nil || !bytes.Contains(threads, []byte("(kthreadd)")) {
		return nil
	}

	return func(pid int) (uint64, bool) {
		const startTime = 22
		stat, err := host.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		at, parseErr := strconv.ParseUint(cgroup.StatField(stat, startTime), 10, 64)
		if parseErr != nil {
			at = 0
		}
		return at, !errors.Is(err, fs.ErrNotExist)
	}
}

// hasCgroup returns a function that reports whether a container has a cgroup. If the host's cgroups cannot be found,
// hasCgroup returns nil.
func (a *Agent) hasCgroup() reconcile.HasCgroup {
	tree, err := a.cgroups()
	if err != nil {
		return nil
	}
	return tree.Exists
}

// counters returns the reader of the containers' counters. It returns nil if no history is recorded, or if the host's
// cgroups cannot be found.
func (a *Agent) counters() *history.Counters {
	if a.options.HistoryInterval == 0 {
		return nil
	}
	tree, err := a.cgroups()
	if err != nil {
		return nil
	}
	return history.NewCounters(a.host, tree)
}
