// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Status is a snapshot of what the node offers.
type Status struct {
	Resources []ResourceStatus
	Runtime   RuntimeInfo
	Config    ConfigStatus
	Refusals  Refusals
	// Corrections counts drift corrections since the process started.
	Corrections map[Correction]uint64
}

// ResourceStatus is one resource with its use.
type ResourceStatus struct {
	classes.Offer
	// InUse is the number of assignments by class, draining classes included.
	InUse      map[string]int
	Conditions []classes.Condition
	Degraded   map[string]string
}

// RuntimeInfo describes the runtime, as reported at the registration.
type RuntimeInfo struct {
	Name, Version, NRIVersion string
	// Synchronized is true from the end of Synchronize until the connection is lost.
	Synchronized bool
	// Since is when Synchronized last became true; zero when it never did.
	Since time.Time
}

// ConfigStatus is the outcome of the last attempts to load class files.
type ConfigStatus struct {
	// Loaded is when the live configuration was applied; zero without one. Hash identifies its files.
	Loaded time.Time
	Hash   string
	Files  []string
	// Generation counts the configurations that were applied, from 1.
	Generation uint64
	// Err is the error of the last attempt, at the time Failed; nil when it succeeded.
	Err    error
	Failed time.Time
}

// Status returns what the node offers now.
func (s *Store) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()

	status := Status{Runtime: s.runtime, Config: s.config, Refusals: maps.Clone(s.refusals), Corrections: maps.Clone(s.drifts)}
	for _, offer := range s.reported() {
		r := s.resources[offer.Name]
		backend := r.Status()
		status.Resources = append(status.Resources, ResourceStatus{
			Offer: offer, InUse: s.ledger.Used(offer.Name), Degraded: backend.Degraded,
			Conditions: slices.Concat(backend.Conditions, r.drift.conditions()),
		})
	}
	return status
}

// reported returns the configured resources, and removed ones in use without their classes. The caller holds mu.
func (s *Store) reported() []classes.Offer {
	offers := slices.Clone(s.catalog.Offers())
	for _, name := range slices.Sorted(maps.Keys(s.resources)) {
		if !s.configured(name) && len(s.ledger.Used(name)) > 0 {
			config := s.resources[name].Config
			offers = append(offers, classes.Offer{Resource: classes.Resource{Name: name, Scope: config.Scope, Mutable: config.Mutable}})
		}
	}
	return offers
}

// Synchronized reports whether the runtime has reported all existing containers, and still reports new ones.
func (s *Store) Synchronized() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runtime.Synchronized
}

// EverSynchronized reports whether the runtime has ever reported all existing containers.
func (s *Store) EverSynchronized() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.runtime.Since.IsZero()
}

// PodAssignments has the assignments of a pod and its containers.
type PodAssignments struct {
	UID, Namespace, Name string
	// SandboxID is the runtime's.
	SandboxID string
	// Assignments are the assignments of pod-scope resources.
	Assignments []classes.Assignment
	Containers  []ContainerAssignments
}

// ContainerAssignments has the class of every resource for a container, the system default included.
type ContainerAssignments struct {
	ID, Name    string
	Assignments []classes.Assignment
}

// Assignments returns every running pod with the class of every resource, by namespace and name. If the observed class is not the
// desired one, the observed one is returned.
func (s *Store) Assignments() []PodAssignments {
	s.mu.Lock()
	entries, offers := s.entries(), s.reported()
	s.mu.Unlock()

	pods := map[string]*PodAssignments{}
	newest := map[string]uint64{} // number of the newest sandbox, by pod
	for _, e := range entries {
		pod := pods[e.PodUID]
		if pod == nil {
			pod = &PodAssignments{UID: e.PodUID, Namespace: e.PodNamespace, Name: e.PodName, SandboxID: e.SandboxID}
			pods[e.PodUID] = pod
		}

		if e.Container != "" {
			pod.Containers = append(pod.Containers, e.report(offers))
		} else if e.Number > newest[e.PodUID] {
			newest[e.PodUID], pod.SandboxID = e.Number, e.SandboxID
			pod.Assignments = e.report(offers).Assignments
		}
	}

	sorted := make([]PodAssignments, 0, len(pods))
	for _, pod := range pods {
		slices.SortFunc(pod.Containers, func(a, b ContainerAssignments) int {
			return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
		})
		sorted = append(sorted, *pod)
	}
	slices.SortFunc(sorted, func(a, b PodAssignments) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
	})
	return sorted
}

// Container returns the assignments of the newest container of an owner, or of the pod if the owner is a pod; ok is false when
// none runs.
func (s *Store) Container(owner classes.Owner) (ctr ContainerAssignments, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	e, err := s.running(owner)
	if err != nil {
		return ContainerAssignments{}, false
	}
	return e.report(s.reported()), true
}

// report returns the class of every resource, including resources that were configured after the holder was admitted.
func (e Entry) report(offers []classes.Offer) ContainerAssignments {
	all := slices.Clone(e.Assignments)
	for i, a := range all {
		if class, differs := e.Observed[a.Resource]; differs {
			all[i] = classes.Assignment{Resource: a.Resource, Class: class, Source: classes.SourceAdopted}
		}
	}

	for _, offer := range offers {
		assigned := slices.ContainsFunc(e.Assignments, func(a classes.Assignment) bool { return a.Resource == offer.Name })
		if offer.Scope == e.Scope() && !assigned {
			all = append(all, classes.Assignment{Resource: offer.Name})
		}
	}
	return ContainerAssignments{ID: e.ID, Name: e.Container, Assignments: all}
}
