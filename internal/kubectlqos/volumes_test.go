// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVolumesShowsInvalidRequests(t *testing.T) {
	const forMain, forNobody = "volumes.qos.noderesource.dev/main", "volumes.qos.noderesource.dev/mian"
	for _, c := range []struct {
		name string
		pod  testPod
		want string
	}{
		{"no path", aPod("p").on("n1").annotated(forMain, "data=gold").waiting("CreateContainerError", "…"),
			`p | main | - | - | - | - | - | BadRequest: the request has "data=gold", which is not of the form /path=class`},
		{"two classes", aPod("p").on("n1").annotated(forMain, "/data=gold,/data=silver").waiting("CreateContainerError", "…"),
			`p | main | - | - | - | - | - | Contradiction: volume /data has two classes, "gold" and "silver"; keep one`},
		{"the pod has no such container", aPod("p").on("n1").annotated(forNobody, "/data=gold").running(),
			"p | mian | - | - | - | - | - | AnnotationIgnored: annotation " + forNobody + " names no container of the pod; its containers are main"},
		{"invalid requests for other resources than volumes", aPod("p").on("n1").asks("rdt=platin").annotated("container.qos.noderesource.dev/mian", "rdt=gold"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, "plain.yaml")
			r.put(t, c.pod.Pod)
			got := r.run(t, "volumes", "p")
			if diff := cmp.Diff(c.want, bare(got.Out)); diff != "" || got.Code != 0 {
				t.Errorf("exit code %d, errors %q, rows (-want +got):\n%s", got.Code, got.Errors, diff)
			}
		})
	}
}
