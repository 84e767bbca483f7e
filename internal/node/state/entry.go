// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// record holds what the store knows about a holder, except for the holder's assignments, which are in the ledger.
type record struct {
	// number orders the holders of one owner. The newest holder has the highest number.
	number uint64
	since  time.Time
	// started becomes true when the first process of the holder is about to run. enforcing is true while a hook
	// enforces the classes.
	started, enforcing bool
	// startTime is the start time of the holder's first process, as it was first observed. It is 0 if unknown.
	startTime uint64
	// created lists the classes that the holder had at its creation. The runtime has stored these classes.
	created []classes.Assignment
	// observed maps a resource to the last observed class, if this class differs from the assigned class. The map is
	// replaced at each change and never modified.
	observed map[string]string
	// inForce is the time when the classes of the holder were last enforced. It is zero if the time is unknown.
	inForce time.Time
	// foreign maps a resource to a description of what another program has set, if the holder has no class of the
	// resource. The map is replaced at each change and never modified.
	foreign map[string]string
	// unverified is true for a pod or volume that may have been created while the plugin was not connected. It becomes
	// false when the reconciler has read its classes from the kernel.
	unverified bool
	// pending is true while a holder runs without the classes that it requests.
	pending bool
	// refused is true if the start of the holder was refused. Some runtimes start a container although a plugin refuses
	// the start. refused becomes false when such a container is in its classes.
	refused bool
	// request is the request of an unverified or pending holder. It is nil if the request is too large to keep.
	request *classes.Holder
	// stale is true if the runtime may have stored values that differ from the assigned classes.
	stale bool
	// updated is true if the runtime was asked to change its stored values since the holder was adopted or created.
	updated bool
}

// Entry is a snapshot of one holder. Its assignments are the desired classes.
type Entry struct {
	classes.Holding
	// Created lists the classes that the holder had at its creation. The runtime has stored these classes.
	Created []classes.Assignment
	// Reserved lists the old and new classes of a change that has not succeeded yet.
	Reserved []classes.Assignment
	// Observed maps a resource to the last observed class, if this class differs from the desired class.
	Observed map[string]string
	// Foreign maps a resource to a description of what another program has set, if the holder has no class of the
	// resource.
	Foreign map[string]string
	// InForce is when the classes of the holder were last enforced. It is zero if a former process enforced them.
	InForce time.Time
	// Number orders the holders of one owner. The newest holder has the highest number.
	Number uint64
	// Started becomes true when the first process of the holder is about to run.
	Started bool
	// Stale is true if the runtime may have stored values that differ from the desired classes.
	Stale bool
}

// ObservedClass returns the last observed class of a resource.
func (e Entry) ObservedClass(resource string) string {
	if class, differs := e.Observed[resource]; differs {
		return class
	}
	return e.Class(resource)
}

func (s *Store) entry(h classes.Holding) Entry {
	r := s.records[h.ID]
	return Entry{
		Holding: h, Created: r.created, Reserved: s.ledger.Reserved(h.ID), Observed: r.observed, Foreign: r.foreign, InForce: r.inForce,
		Number: r.number, Started: r.started, Stale: r.stale,
	}
}

// Get returns a holder by its ID.
func (s *Store) Get(id string) (Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.ledger.Get(id)
	return s.entry(h), ok
}

// Started returns the IDs of all running holders, in a stable order. It leaves out holders whose classes a hook is
// enforcing.
func (s *Store) Started() []string {
	s.mu.Lock()
	defer s.mu.Unlock()

	var ids []string
	for _, h := range s.ledger.Holdings() {
		if r := s.records[h.ID]; r.started && !r.enforcing {
			ids = append(ids, h.ID)
		}
	}
	return ids
}

// creationTime is how long the creation of a container may take. After that, a container that has neither a started
// process nor a cgroup counts as not created. CRI-O gives an OCI runtime 240 s to create a container
// (container_create_timeout), and the kubelet waits 2 minutes for the runtime (runtimeRequestTimeout).
const creationTime = 5 * time.Minute

// Late returns the holders that have not started within creationTime. Their creation may have failed. A volume counts
// as created and started together with its container.
func (s *Store) Late() (late []Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for id, r := range s.records {
		if !r.started && s.now().Sub(r.since) > creationTime {
			h, _ := s.ledger.Get(id)
			late = append(late, s.entry(h))
		}
	}
	return late
}

// InPod returns a pod and its volumes with their desired classes, in any order. If podUID is empty, InPod returns all pods and volumes.
func (s *Store) InPod(podUID string) (holdings []classes.Holding) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for id := range s.records {
		h, _ := s.ledger.Get(id)
		if h.Scope() != classes.ContainerScope && (podUID == "" || h.PodUID == podUID) {
			holdings = append(holdings, h)
		}
	}
	return holdings
}

// Entries returns all holders, in any order.
func (s *Store) Entries() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries()
}

func (s *Store) entries() []Entry {
	entries := make([]Entry, 0, len(s.records))
	for id := range s.records {
		h, _ := s.ledger.Get(id)
		entries = append(entries, s.entry(h))
	}
	return entries
}

// Where returns the holders for which the function selected returns true, in any order. It copies no other holder. The
// function must not call methods of the store.
func (s *Store) Where(selected func(Entry) bool) (entries []Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for id := range s.records {
		h, _ := s.ledger.Get(id)
		if e := s.entry(h); selected(e) {
			entries = append(entries, e)
		}
	}
	return entries
}

// Unverified returns the pods and volumes that may have been created while the plugin was not connected, in the order of
// their adoption.
func (s *Store) Unverified() (entries []Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for id, r := range s.records {
		if r.unverified {
			h, _ := s.ledger.Get(id)
			entries = append(entries, s.entry(h))
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Number, b.Number) })
	return entries
}

func (s *Store) newest(owner qos.Subject) (newest Entry) {
	for id, r := range s.records {
		if h, _ := s.ledger.Get(id); h.Subject() == owner && r.number > newest.Number {
			newest = s.entry(h)
		}
	}
	return newest
}

// isReplaced reports whether another holder of the same owner has got the classes that it requests. The caller holds mu.
func (s *Store) isReplaced(id string, owner qos.Subject) bool {
	newest := s.newest(owner)
	return newest.ID != "" && newest.ID != id && !s.records[newest.ID].pending
}

func (s *Store) modify(id string, change func(*record)) {
	if r, known := s.records[id]; known {
		change(&r)
		s.records[id] = r
	}
}

// track creates the record of a holder that is already in the ledger. The caller holds mu.
func (s *Store) track(id string, r record) {
	s.sequence++
	r.number, r.since = s.sequence, s.now()
	s.records[id] = r
}

// SetStartTime records when the first process of a holder was started. If another time is already recorded, SetStartTime
// returns true, because the PID now belongs to another process.
func (s *Store) SetStartTime(id string, at uint64) (differs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	before := s.records[id].startTime
	if before != 0 && at != 0 && at != before {
		return true
	}
	if at != 0 {
		s.modify(id, func(r *record) { r.startTime = at })
	}
	return false
}

// HasPIDs reports whether the runtime has reported the PID of any container that has started.
func (s *Store) HasPIDs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	for id, r := range s.records {
		if h, _ := s.ledger.Get(id); r.started && h.Container != "" && h.PID > 0 {
			return true
		}
	}
	return false
}

// Enforced records that the reconciler has enforced the classes of a holder.
func (s *Store) Enforced(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.modify(id, func(r *record) { r.inForce = s.now() })
}

// Observe records that a holder was observed in a class of a resource. If this is the desired class, Observe frees the slots
// that a failed change still reserves. It keeps them while the holder is stale, because the runtime may still make that
// change. If the holder runs in all its classes although its start was refused, Observe removes the refusal.
func (s *Store) Observe(id, resource, class string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	h, known := s.ledger.Get(id)
	if !known {
		return
	}
	desired := class == h.Class(resource)
	settled := desired && !s.records[id].stale && s.settle(id, resource)
	recorded, differs := s.records[id].observed[resource]
	same := desired && !differs || differs && recorded == class
	if settled || !same {
		s.observe(id, resource, class)
		s.notify()
	}

	if r := s.records[id]; r.refused && !r.pending && len(r.observed) == 0 {
		s.modify(id, func(r *record) { r.refused = false })
		s.accept(h.Subject())
	}
}

// observe records the observed class of a resource, if it differs from the assigned class. If the two classes are equal,
// observe deletes the record. The caller holds mu.
func (s *Store) observe(id, resource, class string) {
	h, _ := s.ledger.Get(id)
	s.modify(id, func(r *record) { r.observed = with(r.observed, resource, class, class != h.Class(resource)) })
}

// SetForeign records what another program has set for a holder that has no class of a resource. If there is no such
// setting, text is empty.
func (s *Store) SetForeign(id, resource, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.records[id].foreign[resource]; before == text {
		return
	}

	s.modify(id, func(r *record) { r.foreign = with(r.foreign, resource, text, text != "") })
	s.notify()
}

// with returns a copy of a map. If keep is true, the copy has the value under the key. Otherwise it lacks the key. The
// map itself does not change, because copies of an entry may share it.
func with(values map[string]string, key, value string, keep bool) map[string]string {
	values = maps.Clone(values)
	if !keep {
		delete(values, key)
		return values
	}
	if values == nil {
		values = map[string]string{}
	}
	values[key] = value
	return values
}

func (s *Store) observeAll(id string, observed func(resource string) string) {
	h, _ := s.ledger.Get(id)
	for _, a := range h.Assignments {
		s.observe(id, a.Resource, observed(a.Resource))
	}
}

// Updates returns the assignments that updates made after the holder's creation.
func (e Entry) Updates() []classes.Assignment { return updates(e.Assignments) }

func updates(assignments []classes.Assignment) []classes.Assignment {
	return slices.DeleteFunc(slices.Clone(assignments), func(a classes.Assignment) bool { return a.Source != classes.SourceUpdate })
}

// holding returns the Holding that the ledger stores for a holder. It removes the annotations and the settings. For a pod, it also
// removes the PID of the sandbox, because the sandbox's process is not in the pod's cgroup.
func holding(h classes.Holder, assignments []classes.Assignment) classes.Holding {
	h.PodAnnotations, h.ContainerAnnotations, h.Spec.Settings = nil, nil, nil
	if h.Container == "" {
		h.PID, h.SandboxID = 0, h.ID
	}
	return classes.Holding{Holder: h, Assignments: assignments}
}
