// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Has returns, as "class/source", the class that a container or sandbox has of a resource, and the source of this assignment.
func Has(pods []state.PodAssignments, id, resource string) string {
	for _, p := range pods {
		if p.SandboxID == id {
			return of(p.Assignments, resource)
		}
		for _, c := range p.Containers {
			if c.ID == id {
				return of(c.Assignments, resource)
			}
		}
	}
	return "not reported"
}

func of(assignments []state.Reported, resource string) string {
	for _, a := range assignments {
		switch {
		case a.Resource == resource && a.Source == classes.SourceRule:
			return a.Class + "/rule " + a.Key
		case a.Resource == resource:
			return a.Class + "/" + string(a.Source)
		}
	}
	return "not reported"
}

// InUse returns the number of slots of a class that are in use. It returns 0 for the system default.
func InUse(status state.Status, resource, class string) int {
	for _, r := range status.Resources {
		if r.Name == resource {
			return r.InUse[class]
		}
	}
	return 0
}

// Draining returns the number of assignments of removed classes.
func Draining(store *state.Store) (count int) {
	for _, h := range store.Where(func(*state.Holding) bool { return true }) {
		for _, a := range h.Assignments {
			if store.Live().Drains(a) {
				count++
			}
		}
	}
	return count
}
