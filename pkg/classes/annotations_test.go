// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes_test

import (
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// TestIsPodRequestAgreesWithResolve checks that IsPodRequest is true for exactly those pod annotations that Resolve
// reads as requests.
func TestIsPodRequestAgreesWithResolve(t *testing.T) {
	catalog := classes.NewCatalog([]classes.Offer{
		{Resource: classes.Resource{Name: classes.RDTResource, Scope: classes.ContainerScope, Classes: []classes.Class{{Name: "gold"}}}},
		{Resource: classes.Resource{Name: classes.BlockIOResource, Scope: classes.ContainerScope, Classes: []classes.Class{{Name: "gold"}}}},
	})

	for key, value := range map[string]string{
		"qos.noderesource.dev/pod":                             "rdt=gold",
		"container.qos.noderesource.dev/main":                  "rdt=gold",
		"rdt.resources.kubernetes.io/container.main":           "gold",
		"rdt.resources.kubernetes.io/default":                  "gold",
		"rdt.resources.beta.kubernetes.io/container.main":      "gold",
		"rdt.resources.beta.kubernetes.io/pod":                 "gold",
		"blockio.resources.kubernetes.io/container.main":       "gold",
		"blockio.resources.beta.kubernetes.io/pod":             "gold",
		"allocated.qos.noderesource.dev/rdt":                   "rdt=gold",
		"io.kubernetes.cri.rdt-class":                          "gold",
		"qos.noderesource.dev/note":                            "rdt=gold",
		"memory.resources.kubernetes.io/default":               "gold",
		"kubectl.kubernetes.io/last-applied-configuration":     "{}",
		"rdt.resources.beta.kubernetes.io/somethingcontainer.": "gold",
	} {
		t.Run(key, func(t *testing.T) {
			got, err := catalog.Resolve(classes.Holder{Container: "main", PodAnnotations: map[string]string{key: value}})
			if err != nil {
				t.Fatal(err)
			}
			asked := false
			for _, a := range got {
				asked = asked || a.Key == key
			}
			if classes.IsPodRequest(key) != asked {
				t.Errorf("IsPodRequest is %v, but Resolve reads the annotation as a request: %v", !asked, asked)
			}
		})
	}
}
