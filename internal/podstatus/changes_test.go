// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"fmt"
	"testing"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

func TestOfAPodThatNobodyAsksForFewChangesAreKept(t *testing.T) {
	c := changes{byPod: map[podKey][]occurrence{}}
	state := func(class string) *snapshot {
		return &snapshot{pods: map[string]*qosv1alpha1.PodAssignments{"uid": {
			Uid: "uid", Namespace: "default", Name: "web", Containers: []*qosv1alpha1.ContainerAssignments{{
				Name: "main", Id: "1", QosResources: []*qosv1alpha1.Assignment{{Name: "k8s.io/rdt", Class: class}},
			}},
		}}}
	}
	before := state("class-0")
	for i := range 1000 {
		after := state(fmt.Sprintf("class-%d", i+1))
		c.note(before, after)
		before = after
	}
	kept := c.take(before.pods["uid"])
	if len(kept) != 20 || kept[19].message != "main: k8s.io/rdt class-999 -> class-1000" {
		t.Errorf("%d are kept, to %v; want the newest 20", len(kept), kept[len(kept)-1])
	}
	if again := c.take(before.pods["uid"]); len(again) > 0 {
		t.Errorf("%v is told twice", again)
	}
}
