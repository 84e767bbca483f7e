// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"slices"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// VolumeAssignments lists the class of a volume.
type VolumeAssignments struct {
	// Path is the path of the volume in the container.
	Path        string
	Assignments []Reported
	// Device has the numbers of the devices to which the limits apply, e.g. "253:3". It is empty while the limits are not in force.
	Device string
	// InForce is when the limits were put in force. It is zero if they are not in force, or if a former process put them in force.
	InForce time.Time
}

func (s *Store) reportVolume(e Entry, offers []classes.Offer) VolumeAssignments {
	v := VolumeAssignments{Path: e.Volume, Assignments: e.report(offers).Assignments}
	if len(e.Observed) > 0 {
		return v
	}

	v.InForce = e.InForce
	for _, a := range e.Assignments {
		resource, _ := s.Resource(a.Resource)
		if locator, ok := resource.Backend.(classes.Locator); ok {
			v.Device = locator.Device(e.ID)
		}
	}
	return v
}

// admitVolumes assigns classes to the volumes of a container that is about to be created: to all of them, or to none. The caller
// holds mu.
func (s *Store) admitVolumes(container classes.Holder) error {
	volumes, err := s.catalog.Volumes(container)
	if err != nil {
		return err
	}
	for _, volume := range volumes {
		var held classes.Holding
		if held, err = s.admit(volume); err != nil {
			break
		}
		s.trackVolume(volume.ID, false)
		s.releaseOthers(held, func(r record) bool { return !r.started })
	}

	if err != nil {
		s.releaseVolumes(container.ID)
	}
	return err
}

// StartVolumes is called for a container that is about to start. It records the container's process for each of the
// container's volumes. The caller must then enforce the classes of the volumes and call Finish for each of them. If the
// container was created while the plugin was not connected, StartVolumes first admits the container's volumes, either
// all of them or none.
func (s *Store) StartVolumes(container classes.Holder) ([]Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	volumes, err := s.catalog.Volumes(container)
	if err != nil {
		return nil, s.refuse(container, err)
	}
	var entries []Entry
	for _, volume := range volumes {
		if _, known := s.ledger.Get(volume.ID); !known {
			if _, err := s.admit(volume); err != nil {
				s.releaseVolumes(container.ID)
				return nil, s.refuse(volume, err)
			}
			s.trackVolume(volume.ID, false)
		}

		held, _ := s.ledger.Get(volume.ID)
		held = holding(volume, held.Assignments)
		s.ledger.Adopt(held)
		s.modify(volume.ID, func(r *record) { r.started = true })
		entries = append(entries, s.begin(held))
		s.notify()
	}
	return entries, nil
}

// adoptVolumes adopts the volumes of an existing container, and assigns the classes that the pod and claims request. The
// caller holds mu.
func (s *Store) adoptVolumes(c Existing) (failed []FailedAdoption) {
	volumes, err := s.catalog.Volumes(c.Holder)
	if err != nil {
		failed = append(failed, FailedAdoption{c.Holder, err})
	}

	for _, volume := range volumes {
		if err := s.adoptVolume(volume, c.Started); err != nil {
			failed = append(failed, FailedAdoption{volume, err})
		}
	}
	return failed
}

// adoptVolume adopts a volume of an existing container. The runtime stores no record of a volume's classes, so a running
// volume must be verified: it may have been created while the plugin was not connected. A volume whose request became
// invalid keeps the class of its claim. If the container has not started yet, a volume whose request is invalid or whose
// class is full is left to StartVolumes. The caller holds mu.
func (s *Store) adoptVolume(volume classes.Holder, started bool) error {
	if s.keepKnown(volume, started) {
		return nil
	}
	wanted, err := s.catalog.Resolve(volume)
	unverified := err == nil && started && slices.ContainsFunc(wanted, isRequested)
	if err == nil && !unverified {
		err = s.ledger.Admit(holding(volume, wanted), s.catalog)
	}
	if err != nil && !started {
		return nil
	}

	if err != nil {
		wanted = nil
		if claimed, ok := s.catalog.ClaimOf(volume.Subject()); ok {
			wanted = append(wanted, claimed)
		}
	}
	s.ledger.Adopt(holding(volume, wanted))
	s.trackVolume(volume.ID, started)
	if unverified {
		request := requestOf(volume)
		s.modify(volume.ID, func(r *record) { r.unverified, r.request = true, request })
	}
	return s.postpone(volume, err)
}

// trackVolume creates the record of a volume. The volume is reported without its class until a hook or the reconciler
// has enforced or observed the limits. The caller holds mu.
func (s *Store) trackVolume(id string, started bool) {
	s.track(id, record{started: started})
	s.observeAll(id, func(string) string { return classes.SystemDefault })
}

// NotEnforced records why the class of a running volume is not in force. The store reports this reason as a refusal
// until the class is in force. For a container or pod, NotEnforced does nothing, because the store reports the observed
// class.
func (s *Store) NotEnforced(e Entry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notEnforced(e, err)
}

func (s *Store) notEnforced(e Entry, err error) {
	if _, known := s.records[e.ID]; known && e.Volume != "" {
		s.refuseAgain(e.Holder, fmt.Errorf("%s: %w", e, err))
		s.modify(e.ID, func(r *record) { r.refused = true })
	}
}

// endEnforcing records that no hook will enforce the classes of a container's volumes. If the runtime starts the
// container although its start was refused, the reconciler enforces these classes. The caller holds mu.
func (s *Store) endEnforcing(containerID string) {
	for id := range s.records {
		if classes.IsVolumeOf(id, containerID) {
			s.modify(id, func(r *record) { r.enforcing = false })
		}
	}
}

// releaseVolumes releases the volumes of a container. The caller holds mu.
func (s *Store) releaseVolumes(containerID string) {
	for id := range s.records {
		if classes.IsVolumeOf(id, containerID) {
			s.release(id)
		}
	}
}
