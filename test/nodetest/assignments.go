// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetest

import "github.com/qos-nri/qos-nri-plugin/internal/node/state"

// Has returns, as "class/source", the class that a container has of a resource, and the source of this assignment.
func Has(pods []state.PodAssignments, id, resource string) string {
	for _, p := range pods {
		for _, c := range p.Containers {
			for _, a := range c.Assignments {
				if c.ID == id && a.Resource == resource {
					return a.Class + "/" + string(a.Source)
				}
			}
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
	for _, h := range store.Where(func(state.Holding) bool { return true }) {
		for _, a := range h.Assignments {
			if store.Live().Drains(a) {
				count++
			}
		}
	}
	return count
}
