// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"strings"
	"testing"
)

// TestKubeletAnnotationsCopiedFromThePodAreIgnored: some runtimes copy the annotations of a pod to its containers. An
// annotation that the pod also has may thus come from a user, and not from the kubelet.
func TestKubeletAnnotationsCopiedFromThePodAreIgnored(t *testing.T) {
	for _, key := range []string{AllocatedKeyPrefix + "rdt", "io.kubernetes.cri.rdt-class"} {
		value := "gold"
		if strings.HasPrefix(key, AllocatedKeyPrefix) {
			value = "rdt=gold"
		}
		own := map[string]string{key: value}
		for _, test := range []struct {
			name string
			pod  map[string]string
			want string
		}{
			{"set by the kubelet", nil, "gold"},
			{"copied from the pod", own, "bronze"}, // the default
		} {
			t.Run(key+" "+test.name, func(t *testing.T) {
				got, err := testCatalog().Resolve(Holder{PodName: "web", Container: "main", PodAnnotations: test.pod, ContainerAnnotations: own})
				if err != nil {
					t.Fatal(err)
				}
				if got[0].Resource != RDTResource || got[0].Class != test.want {
					t.Errorf("got %+v, want class %q", got[0], test.want)
				}
			})
		}
	}
}

// TestTheAnnotationOfReportedClassesRequestsNothing resolves a pod with the annotation in which the publisher reports
// classes. Whatever its value is, the container gets the default class.
func TestTheAnnotationOfReportedClassesRequestsNothing(t *testing.T) {
	const reported = `{"containers":[{"name":"main","qosResources":[{"name":"k8s.io/rdt","class":"gold","source":"container"}]}]}`
	for _, value := range []string{reported, "rdt=gold", "gold", "", "{"} {
		own := map[string]string{EffectiveKey: value}
		for name, annotations := range map[string][2]map[string]string{"of the pod": {own, nil}, "of the container": {own, own}} {
			got, err := testCatalog().Resolve(Holder{PodName: "web", Container: "main", PodAnnotations: annotations[0], ContainerAnnotations: annotations[1]})
			if err != nil || got[0].Resource != RDTResource || got[0].Class != "bronze" || got[0].Source != SourceDefault {
				t.Errorf("%q as an annotation %s: %+v, %v; want the default class", value, name, got, err)
			}
		}
	}
}
