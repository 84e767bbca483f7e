// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"maps"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// FollowClaims replaces the claims of the node's volumes. It changes only the desired classes of volumes, which the
// next reconcile enforces. The function redefined reports whether the limits of a class have changed. A volume of such a
// class counts as not in the class until a hook or the reconciler has enforced or observed the new limits.
func (s *Store) FollowClaims(volumes []classes.ClaimedVolume, redefined func(class string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.claims = volumes
	s.setCatalog(s.catalog.Offers())
	for id := range maps.Clone(s.records) {
		held, _ := s.ledger.Get(id)
		if class := held.Class(classes.ClaimResource); class != classes.SystemDefault && redefined(class) {
			s.observe(id, classes.ClaimResource, classes.SystemDefault)
		}
	}
	s.notify()
}

// setCatalog replaces the catalog, and updates the classes of volumes that have a claim: the new catalog may offer
// other classes. The caller holds mu.
func (s *Store) setCatalog(offers []classes.Offer) {
	s.catalog = classes.NewCatalog(offers).WithClaims(s.claims)
	for id := range maps.Clone(s.records) {
		switch held, _ := s.ledger.Get(id); held.Scope() {
		case classes.VolumeScope:
			s.followClaim(held)
		case classes.ContainerScope:
			s.addClaimed(held)
		case classes.PodScope: // has no claims
		}
	}
}

// followClaim gives a volume the class that its claim requests. It releases a volume that has no requested class any
// more. The caller holds mu.
func (s *Store) followClaim(before classes.Holding) {
	after := before
	after.Assignments = slices.DeleteFunc(slices.Clone(before.Assignments), func(a classes.Assignment) bool { return a.Source == classes.SourceClaim })
	if claimed, ok := s.catalog.ClaimOf(before.Subject()); ok {
		after.Assignments = append(after.Assignments, claimed)
	}

	switch {
	case slices.Equal(before.Assignments, after.Assignments):
	case len(after.Assignments) == 0 && !s.records[before.ID].pending:
		s.release(before.ID)
		s.accept(before.Subject())
	default:
		s.replace(before, after)
		s.signalDrained(before.Assignments)
	}
}

// addClaimed adopts those volumes of a container that have a claim and are not in the ledger yet. The caller holds mu.
func (s *Store) addClaimed(container classes.Holding) {
	volumes, _ := s.catalog.Volumes(container.Holder) // the ledger has no annotations, so these are the volumes with claims
	for _, volume := range volumes {
		if _, known := s.ledger.Get(volume.ID); known {
			continue
		}
		if claimed, ok := s.catalog.ClaimOf(volume.Subject()); ok {
			s.ledger.Adopt(holding(volume, []classes.Assignment{claimed}))
			s.trackVolume(volume.ID, s.records[container.ID].started)
		}
	}
}

// ClaimError is the error of a volume whose class is requested by its claim and is not in force. This error does not
// keep the container from starting.
type ClaimError struct{ Err error }

func (e ClaimError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e ClaimError) Unwrap() error { return e.Err }
