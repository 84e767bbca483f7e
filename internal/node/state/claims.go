// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// FollowClaims replaces the claims of the node's volumes. It changes only the desired classes of volumes, which the
// next reconcile enforces. The function `redefined` reports whether the limits of a class have changed. Until a hook or
// the reconciler has enforced or observed the new limits, a volume of such a class counts as outside of the class.
func (s *Store) FollowClaims(volumes []classes.ClaimedVolume, redefined func(class string) bool) {
	defer s.lock()()
	n := &s.node

	n.claims = volumes
	n.setCatalog(n.live.Catalog.Offers())
	for _, h := range n.table.all() {
		for _, a := range h.Assignments {
			if a.Source == classes.SourceClaim && redefined(a.Class) {
				n.update(h.ID, func(h *Holding) { h.observe(a.Resource, classes.SystemDefault) })
			}
		}
	}
	n.changed = true
}

// setCatalog replaces the catalog, and updates the classes of volumes that have a claim: the new catalog may offer
// other classes.
func (n *node) setCatalog(offers []classes.Offer) {
	n.live.Catalog = classes.NewCatalog(offers).WithClaims(n.claims)
	for _, h := range n.table.all() {
		switch h.Scope() {
		case classes.VolumeScope:
			n.followClaim(h)
		case classes.ContainerScope:
			n.addClaimed(h)
		case classes.PodScope: // has no claims
		}
	}
}

// followClaim gives a volume the class that its claim requests. It releases a volume that has no requested class any
// more.
func (n *node) followClaim(before Holding) {
	after := slices.DeleteFunc(slices.Clone(before.Assignments), func(a classes.Assignment) bool { return a.Source == classes.SourceClaim })
	if claimed, ok := n.live.Catalog.ClaimOf(before.Subject()); ok {
		after = append(after, claimed)
	}

	switch {
	case slices.Equal(before.Assignments, after):
	case len(after) == 0 && !before.Phase.isWaiting():
		n.release(before.ID)
		n.accept(before)
	default:
		n.update(before.ID, func(h *Holding) { h.assign(after) })
	}
}

// addClaimed adopts those volumes of a container that have a claim and are not known yet.
func (n *node) addClaimed(container Holding) {
	volumes, _ := n.live.Catalog.Volumes(container.Holder) // the table has no annotations, so these are the volumes with claims
	for _, volume := range volumes {
		if _, known := n.table.Get(volume.ID); known {
			continue
		}
		if claimed, ok := n.live.Catalog.ClaimOf(volume.Subject()); ok {
			n.table.Adopt(n.newHolding(volume, []classes.Assignment{claimed}, phaseOf(container.Phase.Started())))
		}
	}
}

// ClaimError is the error of a volume whose class is requested by its claim and is not in force. This error does not
// keep the container from starting.
type ClaimError struct{ Err error }

func (e ClaimError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e ClaimError) Unwrap() error { return e.Err }
