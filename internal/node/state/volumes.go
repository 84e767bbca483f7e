// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import "github.com/qos-nri/qos-nri-plugin/pkg/classes"

// admitVolumes assigns classes to the volumes of a container that is about to be created: to all of them, or to none. The caller
// holds mu.
func (s *Store) admitVolumes(container classes.Holder) error {
	volumes, err := classes.Volumes(container)
	for _, volume := range volumes {
		var held classes.Holding
		if held, err = s.admit(volume); err != nil {
			break
		}
		s.track(volume.ID, record{})
		s.releaseOthers(held, func(r record) bool { return !r.started })
	}

	if err != nil {
		s.releaseVolumes(container.ID)
	}
	return err
}

// StartVolumes records the process of a container that is about to start, for the volumes of the container. The caller must then
// enforce the classes of the volumes and call Finish for each of them. If the container was created while the plugin was away,
// StartVolumes admits its volumes first.
func (s *Store) StartVolumes(container classes.Holder) ([]Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	volumes, err := classes.Volumes(container)
	if err != nil {
		return nil, s.refuse(container, err)
	}
	var entries []Entry
	for _, volume := range volumes {
		if _, known := s.ledger.Get(volume.ID); !known {
			if _, err := s.admit(volume); err != nil {
				return nil, s.refuse(volume, err)
			}
			s.track(volume.ID, record{})
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

// adoptVolumes adopts the volumes of an existing container, and assigns the classes that the pod requests. They count as not
// observed until the reconciler has read the limits from the kernel. The caller holds mu.
func (s *Store) adoptVolumes(c Existing) (failed []FailedAdoption) {
	volumes, err := classes.Volumes(c.Holder)
	if err != nil {
		failed = append(failed, FailedAdoption{c.Holder, err})
	}

	for _, volume := range volumes {
		wanted, err := s.catalog.Resolve(volume)
		s.ledger.Adopt(holding(volume, wanted))
		s.track(volume.ID, record{started: c.Started})
		s.observeAll(volume.ID, func(string) string { return classes.SystemDefault })
		if err := s.postpone(volume, err); err != nil {
			failed = append(failed, FailedAdoption{volume, err})
		}
	}
	return failed
}

// releaseVolumes releases the volumes of a container. The caller holds mu.
func (s *Store) releaseVolumes(containerID string) {
	for id := range s.records {
		if classes.IsVolumeOf(id, containerID) {
			s.release(id)
		}
	}
}
