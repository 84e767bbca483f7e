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
	// InForce is the time at which the limits were put in force. It is zero if they are not in force, or if a former
	// process put them in force.
	InForce time.Time
}

func (o Offering) reportVolume(e Holding, offers []classes.Offer) VolumeAssignments {
	v := VolumeAssignments{Path: e.Volume, Assignments: o.report(e, offers).Assignments}
	if len(e.Observed) > 0 {
		return v
	}

	v.InForce = e.InForce
	for _, a := range e.Assignments {
		resource := o.Resources[a.Resource]
		if locator, ok := resource.Backend.(classes.Locator); ok {
			v.Device = locator.Device(e.ID)
		}
	}
	return v
}

// dropVolumes releases the volumes of a container.
func (n *node) dropVolumes(containerID string) {
	for _, volume := range n.table.volumesOf(containerID) {
		n.drop(volume.ID)
	}
}

// startVolumes records, for each volume of a container, the container's process that is about to start. If the
// container was created while the plugin was not connected, startVolumes first admits the container's volumes, either
// all of them or none.
func (n *node) startVolumes(container classes.Holder) ([]Holding, error) {
	volumes, err := n.catalogFor(container).Volumes(container)
	if err != nil {
		return nil, n.refuse(container, err)
	}
	var started []Holding
	for _, volume := range volumes {
		if _, known := n.table.Get(volume.ID); !known {
			if _, err := n.admit(volume); err != nil {
				n.dropVolumes(container.ID)
				return nil, n.refuse(volume, err)
			}
		}

		n.update(volume.ID, func(h *Holding) { h.Holder = holding(volume, nil).Holder })
		started = append(started, n.begin(volume.ID))
		n.changed = true
	}
	return started, nil
}

// adoptVolumes adopts the volumes of an existing container, and assigns the classes that the pod and claims request.
func (n *adoption) adoptVolumes(c Existing) (failed []FailedAdoption) {
	volumes, err := n.live.Catalog.Volumes(c.Holder)
	if err != nil {
		failed = append(failed, FailedAdoption{c.Holder, err})
	}

	for _, volume := range volumes {
		if err := n.adoptVolume(volume, c.Started); err != nil {
			failed = append(failed, FailedAdoption{volume, err})
		}
	}
	return failed
}

// adoptVolume adopts a volume of an existing container. The runtime stores no record of a volume's classes, so a
// running volume must be verified: it may have been created while the plugin was not connected. A volume whose request
// became invalid keeps the class of its claim. If the container has not started yet, and the request is invalid or the
// class is full, Start decides about the volume.
func (n *adoption) adoptVolume(volume classes.Holder, started bool) error {
	if n.keepKnown(volume, started) {
		return nil
	}

	wanted, err := n.live.Catalog.Resolve(volume)
	held := n.newHolding(volume, wanted, phaseOf(started))
	switch {
	case err == nil && started && slices.ContainsFunc(wanted, classes.Assignment.IsRequested):
		held.Phase, held.Request = Unverified, requestOf(volume)
	case err == nil:
		err = n.table.Admit(n.live.Catalog, held)
	}
	if err != nil && !started {
		return nil
	}

	if err != nil {
		wanted = nil
		if claimed, ok := n.live.Catalog.ClaimOf(volume.Subject()); ok {
			wanted = append(wanted, claimed)
		}
		held = n.newHolding(volume, wanted, Running)
	}
	n.table.Adopt(held)
	return n.postpone(volume, err)
}

// NotEnforced records why the class of a running volume is not in force. The store reports this reason as a refusal
// until the class is in force. For a container or pod, NotEnforced does nothing, because the store reports the observed
// class.
func (s *Store) NotEnforced(e Holding, err error) {
	defer s.lock()()
	s.node.notEnforced(e, err)
}

func (n *node) notEnforced(e Holding, err error) {
	if _, known := n.table.Get(e.ID); known && e.Volume != "" {
		n.refuseAgain(e.Holder, fmt.Errorf("%s: %w", e, err))
		n.update(e.ID, func(h *Holding) { h.happens(notEnforced) })
	}
}
