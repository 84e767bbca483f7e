// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"maps"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// kept has the requested classes of ended containers and their volumes, by subject, while their pod runs. The kubelet
// may start such a container again. If one of its classes was removed meanwhile, the class drains: the new container
// still gets the class, because otherwise a single crash would keep the pod from running for ever.
//
// These subjects occupy no slots: if the class is offered again, other containers may take its slots, and the new
// container then waits for a free slot. The kept classes of a subject end when a new holder has its classes, when the
// sandbox of the pod ends, and when the plugin ends.
type kept map[qos.Subject]classes.Holding

// keep records the classes of a holder that is about to be removed from the table, unless a new holder of the subject
// has its classes.
func (n *node) keep(h Holding) {
	requested := slices.DeleteFunc(slices.Clone(h.Assignments), func(a classes.Assignment) bool {
		return !a.IsRequested() || a.Class == classes.SystemDefault && a.Source != classes.SourceUpdate
	})
	if h.Scope() != classes.PodScope && len(requested) > 0 && !n.table.isReplaced(h.ID, h.Subject()) {
		n.kept[h.Subject()] = classes.Holding{Holder: h.Holder, Assignments: requested}
	}
}

// forget ends the kept classes of the pods for which `ended` returns true, and those of subjects that have a new holder.
func (n *node) forget(ended func(sandboxID string) bool) {
	for subject, held := range n.kept {
		if ended(held.SandboxID) || n.table.isReplaced(held.ID, subject) {
			delete(n.kept, subject)
			n.left(held.Assignments)
		}
	}
}

// resolve decides the classes of a holder that is about to be created, or was created while the plugin was not
// connected. It also returns the catalog for the admission of the holder.
func (n *node) resolve(h classes.Holder) (*classes.Catalog, []classes.Assignment, error) {
	catalog, all, err := n.resolveWith(h, func(catalog *classes.Catalog) ([]classes.Holding, error) {
		assignments, err := catalog.Resolve(h)
		return []classes.Holding{{Holder: h, Assignments: assignments}}, err
	})
	if err != nil {
		return catalog, nil, err
	}
	return catalog, all[0].Assignments, nil
}

// resolveWith calls `decide`, which decides the classes of a holder with a catalog. If a requested class does not exist
// any more, and an update gave a former container of the same name another class, the holder gets that class, too.
// Otherwise the kubelet could never start the container again, because the runtime repeats the request of the creation.
func (n *node) resolveWith(h classes.Holder, decide func(*classes.Catalog) ([]classes.Holding, error)) (*classes.Catalog, []classes.Holding, error) {
	catalog := n.catalogFor(h)
	withRemoved, removed := catalog, []*classes.RequestError(nil)
	all, err := decide(catalog)
	for {
		refused, ok := errors.AsType[*classes.RequestError](err)
		if !ok || !errors.Is(refused, classes.ErrUnknownClass) || n.updateOf(refused) == nil {
			break
		}
		removed = append(removed, refused)
		withRemoved = withRemoved.With([]classes.Resource{{Name: refused.Resource, Classes: []classes.Class{{Name: refused.Class}}}})
		all, err = decide(withRemoved)
	}
	if err != nil {
		return catalog, nil, n.explained(err)
	}

	for _, refused := range removed {
		i := slices.IndexFunc(all, func(held classes.Holding) bool { return held.Subject() == refused.Holder.Subject() })
		all[i].Assignments = classes.Overlay(all[i].Assignments, []classes.Assignment{*n.updateOf(refused)})
	}
	return catalog, all, nil
}

// updateOf returns the class to which an update has changed the former container or volume of the same name, or nil.
func (n *node) updateOf(refused *classes.RequestError) *classes.Assignment {
	former, ok := n.kept[refused.Holder.Subject()]
	if !ok {
		former = n.table.newest(refused.Holder.Subject()).Holding
	}
	i := slices.IndexFunc(former.Assignments, func(a classes.Assignment) bool {
		return a.Resource == refused.Resource && a.Source == classes.SourceUpdate
	})
	if i < 0 {
		return nil
	}
	return &former.Assignments[i]
}

// explained adds to the error of a refused request that the class is draining, so that users see why other pods still
// have it.
func (n *node) explained(err error) error {
	if refused, ok := errors.AsType[*classes.RequestError](err); ok && refused.Class != classes.SystemDefault &&
		n.live.Drains(refused.Assignment) && n.table.InUse(refused.Resource, refused.Class) > 0 {
		refused.Problem += "; the class was removed from the class files, and only pods that already have it keep it"
	}
	return err
}

// catalogFor returns the live catalog, with those draining classes that the holder's pod has, or that a former
// container of the same name had.
func (n *node) catalogFor(h classes.Holder) *classes.Catalog {
	var draining []classes.Resource
	add := func(held classes.Holding) {
		sameName := held.Container == "" || held.Container == h.Container
		if held.PodUID != h.PodUID || !sameName {
			return
		}
		for _, a := range held.Assignments {
			if resource, there := n.live.Resources[a.Resource]; there && a.IsRequested() && n.live.Drains(a) {
				only := resource.Config.Resource
				only.DefaultClass, only.Rules = classes.SystemDefault, nil
				only.Classes = []classes.Class{{Name: a.Class, Capacity: n.removed[slot{a.Resource, a.Class}]}}
				draining = append(draining, only)
			}
		}
	}

	for _, other := range n.table.InGroup(group{podUID: h.PodUID}, func(*Holding) bool { return true }) {
		add(other.Holding)
	}
	for _, held := range n.kept {
		add(held)
	}
	return n.live.Catalog.With(draining)
}

// used returns the number of owners of each class of a resource that is in use. A draining class that is only kept has
// the number 0.
func (n *node) used(resource string) map[string]int {
	used := n.table.Used(resource)
	for _, held := range n.kept {
		for _, a := range held.Assignments {
			if _, counted := used[a.Class]; a.Resource == resource && n.live.Drains(a) && !counted {
				used[a.Class] = 0
			}
		}
	}
	return used
}

// MayBeUsed reports whether a holder has `class`, or whether the class is kept for a container that has ended. A new
// container may get a kept class even if the class was removed.
func (s *View) MayBeUsed(resource, class string) bool {
	defer s.lock()()
	n := &s.node

	if n.table.InUse(resource, class) > 0 {
		return true
	}
	for _, held := range n.kept {
		if held.Class(resource) == class {
			return true
		}
	}
	return false
}

// KeptPods returns a Holder for each pod that has kept classes: the pod's name, its sandbox and its cgroup.
func (s *View) KeptPods() []classes.Holder {
	defer s.lock()()

	pods := map[string]classes.Holder{}
	for _, held := range s.node.kept {
		pods[held.SandboxID] = classes.Holder{
			ID: held.SandboxID, SandboxID: held.SandboxID, PodUID: held.PodUID, PodNamespace: held.PodNamespace, PodName: held.PodName,
			CgroupsPath: held.PodCgroupsPath, PodCgroupsPath: held.PodCgroupsPath,
		}
	}
	return slices.Collect(maps.Values(pods))
}
