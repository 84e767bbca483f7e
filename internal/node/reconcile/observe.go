// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/internal/node/kernel"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// observer reads from the kernel what holders have.
type observer struct {
	*enforcer
	// startTime may be nil. The start times of processes are then unknown.
	startTime StartTime
}

// observation is the class of one resource that the kernel shows for a holder.
type observation struct {
	assigned classes.Assignment
	classes.Observation
	unavailable bool
	// draining is true if the desired class is no longer offered, so that no holder can be moved into it.
	draining bool
}

// process is the first process of a container. `looked` is false if it is unknown.
type process struct {
	looked, exists bool
	startTime      uint64
}

// observe reads the class of each resource from the kernel, except for those of `renewed`, and looks for the holder's process. If
// reading the class of one resource fails, observe continues with the other resources.
func (b observer) observe(ctx context.Context, e state.Holding, renewed []Step) ([]observation, process, error) {
	o := &observed{Holding: e}
	b.observeAll(ctx, []*observed{o}, renewed)
	return o.classes, o.process, o.err
}

// observed is what the kernel shows of a holder.
type observed struct {
	state.Holding
	classes []observation
	process process
	err     error
}

// observeAll works like observe for several holders.
func (b observer) observeAll(ctx context.Context, all []*observed, renewed []Step) {
	live := b.store.Live()
	var looks []look
	for _, o := range all {
		for _, a := range o.Assignments {
			isOf := func(s Step) bool { return s.Resource == a.Resource }
			if _, there := live.Resources[a.Resource]; there && !slices.ContainsFunc(renewed, isOf) {
				looks = append(looks, look{o, a}) // for the others, no backend can enforce the class now, or renew has just done so
			}
		}
		if o.Container != "" && o.PID > 0 && b.startTime != nil {
			looks = append(looks, look{o, classes.Assignment{}})
		}
	}

	b.look(ctx, live, looks, func(at look, now view, err error) {
		o, a := at.of, at.assigned
		switch {
		case a.Resource == "":
			o.process = now.process
		case err != nil:
			o.err = errors.Join(o.err, err)
		default:
			o.classes = append(o.classes, observation{a, now.Observation, live.Resources[a.Resource].Unavailable != nil, live.Drains(a)})
		}
	})
}

// observeStep records the class that a holder has after a step that failed.
func (r *Reconciler) observeStep(ctx context.Context, e state.Holding, s Step) {
	class := s.From
	if s.From == s.To {
		class = classes.SystemDefault // the holder may have none of the values of the class
	}
	live := r.store.Live()
	if _, ok := live.Resources[s.Resource]; ok {
		to := look{&observed{Holding: e}, classes.Assignment{Resource: s.Resource, Class: s.To}}
		r.observer.look(context.WithoutCancel(ctx), live, []look{to}, func(_ look, now view, err error) {
			if err == nil && now.Known && (now.Stale == "" || s.From == s.To) {
				class = now.Class
			}
		})
	}
	r.store.Observe(e.ID, s.Resource, class)
}

// view is what the kernel shows of a holder: its class of a resource, or its process.
type view struct {
	classes.Observation
	process
}

// look is one call into the kernel: it reads the class of a resource for a holder or, without a resource, looks for its process.
type look struct {
	of       *observed
	assigned classes.Assignment
}

func (l look) String() string {
	if l.assigned.Resource == "" {
		return "look for the process of " + l.of.String()
	}
	return fmt.Sprintf("read the %s class of %s", l.assigned.Resource, l.of)
}

// look makes calls into the kernel one after another. The function `then` gets the result of each.
func (b observer) look(ctx context.Context, live state.Offering, looks []look, then func(look, view, error)) {
	late := &lateError{observeTime}
	kernel.Calls[view]{
		Guard: b.guard, Limit: observeTime,
		Call: func(i int) kernel.Call {
			return kernel.Call{Resource: looks[i].assigned.Resource, HolderID: looks[i].of.ID}
		},
		What: func(i int) string { return looks[i].String() },
		Do: func(ctx context.Context, i int) (seen view, err error) {
			at := looks[i]
			if at.assigned.Resource == "" {
				seen.looked = true
				seen.startTime, seen.exists = b.startTime(at.of.PID)
				return seen, nil
			}
			seen.Observation, err = live.Resources[at.assigned.Resource].Observe(ctx, at.of.Holder, at.assigned.Class)
			return seen, err
		},
		Then: func(i int, seen view, err error) {
			if errors.Is(err, late) {
				b.logLate(looks[i].String(), observeTime)
			}
			then(looks[i], seen, err)
		},
	}.Each(ctx, &b.worker, len(looks), late)
}

// together is the number of containers that settle observes at once. It is small, so that reconcile acts soon on what is not settled.
const together = 32

// settle observes running containers, and records the classes of those for which reconcile would do nothing else. It returns their IDs. One
// series of calls into the kernel for all of them needs less CPU time than one for each.
func (r *Reconciler) settle(ctx context.Context, ids []string) map[string]bool {
	var all []*observed
	for _, id := range ids {
		e, ok := r.store.Quiet(id)
		changed := func(a classes.Assignment) bool { return r.hasChanged(e, a) }
		if ok && e.Container != "" && e.PID > 0 && !slices.ContainsFunc(e.Assignments, changed) {
			all = append(all, &observed{Holding: e})
		}
	}

	r.observer.observeAll(ctx, all, nil)
	settled := map[string]bool{}
	for _, o := range all {
		if o.settled() && (r.observer.startTime == nil || o.process.exists && o.process.startTime == o.StartTime) {
			r.plan(o.Holding, o.classes)
			settled[o.ID] = true
		}
	}
	return settled
}

// settled reports whether reconcile would do nothing for a running container, or only record its classes.
func (o *observed) settled() bool {
	if o.err != nil && (errors.Is(o.err, classes.ErrEnded) || len(o.Observed) > 0) {
		return false
	}
	return !slices.ContainsFunc(o.classes, func(class observation) bool {
		_, needed := class.step(o.Holding)
		return needed
	})
}
