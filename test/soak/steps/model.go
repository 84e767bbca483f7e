// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"math/rand/v2"
	"slices"
)

// pod is a pod that was run, with its containers in the order of their creation.
type pod struct {
	id         string
	config     Pod
	request    request
	containers []*container
	// had has the names of the containers that the pod has or had.
	had map[string]bool
}

type container struct {
	pod      *pod
	id, name string
	state    state
	// changed has the classes, by resource, that updates have set since the container's creation. The container must
	// keep them. nil means that there was no update, or that its result is unknown.
	changed map[string]string
}

type state int

const (
	created state = iota
	running
	ended
)

func (c *container) String() string { return c.pod.config.Name + "/" + c.name }

// operation is one random action on the node.
type operation struct {
	action, what string
	do           func(ctx context.Context) error
	// `then` records the outcome in the model, if there is something to record. The outcomes of concurrent operations are
	// recorded one after another.
	then func(err error)
	// `may` has the reasons for which the operation may fail. `must` is true if the operation must fail.
	may  []string
	must bool
	// judged is true if the outcome is compared with `may` and `must` while Soak.calm is true.
	judged bool
	// touches is the pod that the operation changes. No concurrent operation may change it.
	touches *pod
}

// action is a kind of operation. The function `plan` returns a new operation of this kind, or nil if none is possible now.
type action struct {
	weight int
	plan   func(s *Soak) *operation
	// If `alone` or `trouble` is true, an operation of this kind never runs concurrently with other operations. If
	// `trouble` is true, every later operation may fail until the node is settled again.
	alone, trouble bool
}

// choose picks a random action. `weight` is the probability of an action relative to the others.
func choose(random *rand.Rand, actions []action) action {
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	at := random.IntN(total)
	for _, a := range actions {
		if at -= a.weight; at < 0 {
			return a
		}
	}
	return actions[0]
}

// anyContainer picks a container that is in one of the given states and whose pod is not busy.
func (s *Soak) anyContainer(in ...state) *container {
	var found []*container
	for _, p := range s.pods {
		if s.busy[p] {
			continue
		}
		for _, c := range p.containers {
			if slices.Contains(in, c.state) {
				found = append(found, c)
			}
		}
	}

	return anyOf(s.random, found)
}

// anyOf picks a random item, or nil if there are none.
func anyOf[T any](random *rand.Rand, from []*T) *T {
	if len(from) == 0 {
		return nil
	}
	return from[random.IntN(len(from))]
}

func (s *Soak) anyPod() *pod {
	return anyOf(s.random, slices.DeleteFunc(slices.Clone(s.pods), func(p *pod) bool { return s.busy[p] }))
}

func (p *pod) remove(c *container) {
	p.containers = slices.DeleteFunc(p.containers, func(other *container) bool { return other == c })
}

func (s *Soak) removePod(p *pod) {
	s.pods = slices.DeleteFunc(s.pods, func(other *pod) bool { return other == p })
}
