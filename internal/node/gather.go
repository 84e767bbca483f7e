// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Gather looks for threads that are not in the class of their container, in those containers whose class is not the one that they were
// created in: the runtime puts processes that it starts in them later, as for "kubectl exec", into that one. It is to be called
// twice a second, and costs nothing when no such container runs.
func (n *Node) Gather(ctx context.Context) {
	if err := n.changing.take(ctx); err != nil {
		return
	}
	defer n.changing.leave()
	n.gather(ctx, changedContainers)
}

// Which containers gather looks at, by the classes that they have and were created in.
func changedContainers(has, created string) bool { return has != created }
func everyContainer(string, string) bool         { return true }

func (n *Node) gather(ctx context.Context, which func(has, created string) bool) {
	for key, targets := range n.gatherable(which) {
		strayed, err := key.gatherer.MoveThreads(ctx, key.class, targets)
		if ctx.Err() == nil {
			n.sayGathered(key, err)
		}
		if len(strayed) > 0 {
			n.mu.Lock()
			n.mends[Mend{key.resource, MendedThreads}] += uint64(len(strayed))
			n.mu.Unlock()
		}
	}
}

type gathering struct {
	gatherer        classes.ThreadMover
	resource, class string
}

// gatherable are the containers to look at, by the class that they are in.
func (n *Node) gatherable(which func(has, created string) bool) map[gathering][]classes.Holder {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := map[gathering][]classes.Holder{}
	for id, t := range n.tracked {
		if !t.started || t.target.Container == "" {
			continue
		}
		holder, _ := n.ledger.Get(id)
		for _, a := range holder.Assignments {
			_, astray := t.astray[a.Resource]
			b := n.backends[a.Resource]
			gatherer, ok := b.Backend.(classes.ThreadMover)
			if ok && b.unavailable == nil && !astray && which(a.Class, classOf(t.created, a.Resource)) {
				key := gathering{gatherer, a.Resource, a.Class}
				found[key] = append(found[key], t.target)
			}
		}
	}
	return found
}

// sayGathered warns of what could not be done once, and not twice a second.
func (n *Node) sayGathered(key gathering, err error) {
	text := ""
	if err != nil {
		text = oneLine{err}.Error()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	name := key.resource + "=" + key.class
	if text != "" && text != n.gathers[name] {
		n.log.Warn("threads could not be brought into the class of their container; it is tried again",
			"resource", key.resource, "class", key.class, "error", text)
	}
	n.gathers[name] = text
}
