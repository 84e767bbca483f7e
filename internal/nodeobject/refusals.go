// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	"maps"
	"slices"
	"strings"
	"sync"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/objectbudget"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// refusedChanges has the refused class changes of running containers. It is safe for concurrent use.
type refusedChanges struct {
	changed chan struct{} // has room for one value, which is sent at every change
	mu      sync.Mutex    // guards byPod
	byPod   map[string][]nodeqosv1alpha1.Refusal
}

func newRefusedChanges() *refusedChanges {
	return &refusedChanges{changed: make(chan struct{}, 1), byPod: map[string][]nodeqosv1alpha1.Refusal{}}
}

func (c *refusedChanges) set(pod string, refusals []nodeqosv1alpha1.Refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if slices.Equal(c.byPod[pod], refusals) {
		return
	}
	if c.byPod[pod] = refusals; len(refusals) == 0 {
		delete(c.byPod, pod)
	}
	select {
	case c.changed <- struct{}{}:
	default: // one value is enough
	}
}

func (c *refusedChanges) all() (refusals []nodeqosv1alpha1.Refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, pod := range slices.Sorted(maps.Keys(c.byPod)) {
		refusals = append(refusals, c.byPod[pod]...)
	}
	return refusals
}

// SetRefusedChanges sets the refused class changes of the containers of a pod, which is given as namespace/name. The
// plugin does not report these refusals.
func (p *Publisher) SetRefusedChanges(pod string, refusals []nodeqosv1alpha1.Refusal) {
	p.refused.set(pod, refusals)
}

// setRefusals sets the refusals of a status. Refused changes come first, because "kubectl qos set" waits for them. Until
// the plugin is ready for the first time, the refusals keep their values.
func (p *Publisher) setRefusals(desired *nodeqosv1alpha1.NodeQOSResourcesStatus, state nodecache.State) {
	if state.Status == nil {
		return
	}

	refusals := p.refused.all()
	for _, r := range state.Assignments.GetRefusals() {
		refusals = append(refusals, nodeqosv1alpha1.Refusal{
			Namespace: r.GetNamespace(), Pod: r.GetPod(), PodUID: r.GetPodUid(), Container: r.GetContainer(), Volume: r.GetVolume(),
			Reason: r.GetReason(), Message: r.GetMessage(),
		})
	}
	for i := range refusals {
		refusals[i].Message = shortMessage(refusals[i])
	}
	// Refusals have a budget of their own, because every user who can create pods can cause refusals.
	kept, omitted := objectbudget.Fit(refusals, objectbudget.Refusals, nodeqosv1alpha1.MaxHolders, func(r nodeqosv1alpha1.Refusal) (string, int) {
		return r.Namespace, objectbudget.Size(r)
	})
	desired.Refusals, desired.RefusalsOmitted = kept, int64(len(omitted))
}

// shortMessage returns the message of a refusal without the names at its beginning, which are in other fields.
func shortMessage(r nodeqosv1alpha1.Refusal) string {
	holder := classes.Holder{PodNamespace: r.Namespace, PodName: r.Pod, Container: r.Container, Volume: r.Volume}
	return cut(strings.TrimPrefix(r.Message, holder.String()+": "), longestDescription)
}

// changesIn returns those refusals that are refused changes.
func changesIn(refusals []nodeqosv1alpha1.Refusal) []nodeqosv1alpha1.Refusal {
	return slices.DeleteFunc(slices.Clone(refusals), func(r nodeqosv1alpha1.Refusal) bool {
		return r.Reason != nodeqosv1alpha1.ReasonChangeRefused
	})
}
