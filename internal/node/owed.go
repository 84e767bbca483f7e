// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// mostOwed bounds what is kept of one request, in bytes; nobody asks for classes with more.
const mostOwed = 16 << 10

// owe notes that a container or pod, which was made while the plugin was away, runs without the classes that it asks for. It is told like
// who is refused, for as long as it runs. The caller holds mu.
func (n *Node) owe(holder classes.Holding, request classes.Holder, err error) {
	_ = n.refuse(holder, runsWithout(err))
	if kept := request.WithoutUnusedAnnotations(); kept.AnnotationsSize() <= mostOwed {
		n.owed[holder.ID] = kept
	}
}

func runsWithout(err error) error {
	return fmt.Errorf("%w; it was made while qos-nri-plugin was not connected to the runtime, and runs without", err)
}

// claim gives a holder that runs without the classes that it asks for these classes, once it can have them. What it was changed to since,
// it keeps.
func (n *Node) claim(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	request, owed := n.owed[id]
	before, known := n.ledger.Get(id)
	if !owed || !known {
		return
	}
	after := before
	wanted, err := n.catalog.Resolve(request)
	if err == nil {
		after.Assignments = classes.Overlay(wanted, updated(before.Assignments))
		err = n.ledger.Admit(after, n.catalog)
	}
	if err != nil {
		n.refuseStill(before, runsWithout(err))
		return
	}
	t := n.tracked[id]
	for _, a := range after.Assignments {
		n.found(id, a, t.classOf(before, a.Resource))
	}
	n.settleDebt(id, before.Owner())
	n.notify()
}

// settleDebt forgets what a holder asked for. The caller holds mu.
func (n *Node) settleDebt(id string, owner classes.Owner) {
	if _, owed := n.owed[id]; owed {
		delete(n.owed, id)
		n.accept(owner)
	}
}

// updated are the assignments that were changed after the creation.
func updated(assignments []classes.Assignment) []classes.Assignment {
	return slices.DeleteFunc(slices.Clone(assignments), func(a classes.Assignment) bool { return a.Source != classes.SourceUpdate })
}
