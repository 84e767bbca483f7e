// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
)

// TestAConditionNamesThePodsOfRemovedClasses: the class "old" of the function status is draining. `want` is the end of the
// condition's message, which names at most 20 pods, or "" if there is no condition. Pods that have not requested the class
// themselves do not count.
func TestAConditionNamesThePodsOfRemovedClasses(t *testing.T) {
	for _, test := range []struct {
		name   string
		source qosv1alpha1.Source
		pods   int
		want   string
	}{
		{"no pod", qosv1alpha1.Source_SOURCE_ALLOCATED, 0, ""},
		{"one pod", qosv1alpha1.Source_SOURCE_ALLOCATED, 1, "again: ns/pod-00 (old of k8s.io/rdt)"},
		{"many pods", qosv1alpha1.Source_SOURCE_POD, 30, "ns/pod-19 (old of k8s.io/rdt), and 10 more"},
		{"a pod with the former default class", qosv1alpha1.Source_SOURCE_DEFAULT, 1, ""},
		{"a pod with the class of a former rule", qosv1alpha1.Source_SOURCE_RULE, 1, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			info := status(at(8, 0, 0))
			s := nodecache.State{Status: info, Latest: info, Assignments: &qosv1alpha1.ListAssignmentsResponse{}}
			for i := range test.pods {
				name := fmt.Sprintf("pod-%02d", i)
				of := container("main", "old")
				of.QosResources[0].Source = test.source
				s.Assignments.Pods = append(s.Assignments.Pods, &qosv1alpha1.PodAssignments{
					Uid: name, Namespace: "ns", Name: name, Containers: []*qosv1alpha1.ContainerAssignments{of},
				})
			}

			got, _ := desiredStatus(s, nodeqosv1alpha1.NodeQOSResourcesStatus{}, at(9, 0, 0))
			condition := meta.FindStatusCondition(got.Conditions, nodeqosv1alpha1.ConditionClassesDraining)
			switch {
			case test.want == "" && condition != nil:
				t.Errorf("the object has the condition %v", condition)
			case test.want != "" && (condition == nil || !strings.HasSuffix(condition.Message, test.want)):
				t.Errorf("the condition is %v, want a message that ends with %q", condition, test.want)
			}
		})
	}
}
