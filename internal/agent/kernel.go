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

// gatherInterval is how often processes are looked for that a runtime has started in a container whose class was changed.
const gatherInterval = 500 * time.Millisecond

// settling is when the machine is looked at after a device has come or gone: once its file is there, and again for the links
// that udev makes.
func settling() []time.Duration {
	return []time.Duration{100 * time.Millisecond, time.Second, 2 * time.Second}
}

// watchMachine keeps what runs in its classes, whatever others do to the machine.
func (a *Agent) watchMachine(ctx context.Context, n *node.Node, disks <-chan struct{}) error {
	inspect, gather := time.NewTicker(a.options.InspectInterval), time.NewTicker(gatherInterval)
	defer inspect.Stop()
	defer gather.Stop()
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
		case <-inspect.C:
			n.Repair(ctx)
		case <-gather.C:
			n.MoveThreads(ctx)
		}
	}
}

// followDisks listens from now on, and signals when disks came or went. Without the kernel's messages they are noticed by the next look
// at the machine.
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
	a.log.Warn("disks that come or go are noticed late", "within", a.options.InspectInterval, "error", err)
}

// settler is a timer that fires some times after the last thing that happened.
type settler struct {
	timer  *time.Timer
	delays []time.Duration
	at     int // index of the delay that the timer waits for; len(delays): none
}

func newSettler(delays []time.Duration) *settler {
	s := &settler{timer: time.NewTimer(time.Hour), delays: delays, at: len(delays)}
	s.timer.Stop()
	return s
}

// begin waits for the first delay, or for the second one if that has passed a moment ago: events that go on and on neither put it off
// nor make it fire without a pause.
func (s *settler) begin() {
	switch {
	case s.at == len(s.delays):
		s.at = 0
	case s.at > 1:
		s.at = 1
	default:
		return // it waits already
	}
	s.timer.Reset(s.delays[s.at])
}

// next waits for the next delay, if there is one.
func (s *settler) next() {
	if s.at++; s.at < len(s.delays) {
		s.timer.Reset(s.delays[s.at])
	}
}
