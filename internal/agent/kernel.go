// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/uevent"
)

// threadsInterval is how often threads outside of the class of their container are moved, in containers whose class was changed.
const threadsInterval = 500 * time.Millisecond

// settling returns the delays of repairs after a device was added or removed: for its file, and for the links that udev makes.
func settling() []time.Duration {
	return []time.Duration{100 * time.Millisecond, time.Second, 2 * time.Second}
}

// repair corrects drift periodically, and when disks have changed.
func (a *Agent) repair(ctx context.Context, n *node.Node, disks <-chan struct{}) error {
	repair, moveThreads := time.NewTicker(a.options.RepairInterval), time.NewTicker(threadsInterval)
	defer repair.Stop()
	defer moveThreads.Stop()
	settle := newSettler(settling())
	defer settle.timer.Stop()

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-disks:
			settle.begin()
		case <-settle.timer.C:
			n.Repair(ctx)
			settle.next()
		case <-repair.C:
			n.Repair(ctx)
		case <-moveThreads.C:
			n.MoveThreads(ctx)
		}
	}
}

// followDisks listens for kernel events from now on, and signals when disks were added or removed. Without events the next repair
// finds them.
func (a *Agent) followDisks(ctx context.Context, group *errgroup.Group, changed chan<- struct{}) {
	listener, err := uevent.Listen()
	if err != nil {
		a.warnOfDisks(err)
		return
	}

	group.Go(func() error {
		err := listener.Follow(ctx, "block", func() {
			select {
			case changed <- struct{}{}:
			default: // signalled already
			}
		})
		if err != nil {
			a.warnOfDisks(err)
		}
		return nil
	})
}

func (a *Agent) warnOfDisks(err error) {
	a.log.Warn("disks that come or go are noticed late", "within", a.options.RepairInterval, "error", err)
}

// settler is a timer that fires after each of its delays, counted from the last event.
type settler struct {
	timer  *time.Timer
	delays []time.Duration
	at     int // index of the current delay; len(delays) is none
}

func newSettler(delays []time.Duration) *settler {
	s := &settler{timer: time.NewTimer(time.Hour), delays: delays, at: len(delays)}
	s.timer.Stop()
	return s
}

// begin starts the first delay, or the second one if the first has just ended: repeated events neither postpone the timer nor make it
// fire without a pause.
func (s *settler) begin() {
	switch {
	case s.at == len(s.delays):
		s.at = 0
	case s.at > 1:
		s.at = 1
	default:
		return // a delay runs
	}
	s.timer.Reset(s.delays[s.at])
}

// next starts the next delay, if there is one.
func (s *settler) next() {
	if s.at++; s.at < len(s.delays) {
		s.timer.Reset(s.delays[s.at])
	}
}
