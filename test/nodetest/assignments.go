// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetest

import "github.com/qos-nri/qos-nri-plugin/internal/node/state"

// Has returns the class of a container's resource and its source, as "class/source".
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
