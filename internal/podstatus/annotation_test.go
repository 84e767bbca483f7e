// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

func TestTheAnnotationListsEveryResource(t *testing.T) {
	list := assigned(
		ctr("side", "2", has("k8s.io/rdt", "bronze", qosv1alpha1.Source_SOURCE_RULE), has("k8s.io/blockio", "", none)),
		ctr("main", "1", has("k8s.io/rdt", "gold", allocated)),
	)
	list.QosResources = []*qosv1alpha1.Assignment{has("vendor.example/network", "fast", fromPod)}
	list.Containers[0].QosResources[0].RequestedBy = "batch"
	list.Containers[0].QosResources[0].Stale = "oomScoreAdj"
	list.Containers[0].QosResources[1].Foreign = `limits of "sda"`
	list.Containers[1].Volumes = []*qosv1alpha1.VolumeAssignments{{Path: "/data", Device: "253:3", QosResources: []*qosv1alpha1.Assignment{
		has("qos.noderesource.dev/volume-io", "silver", container),
	}}}
	o := observed{pod: podWith("main", "side"), assignments: list}

	const want = `{"qosResources":[
{"name":"vendor.example/network","class":"fast","source":"pod"}],"containers":[
{"name":"main","qosResources":[
{"name":"k8s.io/rdt","class":"gold","source":"allocated"}],"volumes":[{"path":"/data","qosResources":[
{"name":"qos.noderesource.dev/volume-io","class":"silver","source":"container"}],"device":"253:3"}]},
{"name":"side","qosResources":[
{"name":"k8s.io/rdt","class":"bronze","source":"rule batch","stale":"oomScoreAdj"},
{"name":"k8s.io/blockio","class":"","foreign":"limits of \"sda\""}]}]}`
	if got := o.annotation(); got != want || !json.Valid([]byte(got)) {
		t.Errorf("the annotation is %s\nwant %s", got, want)
	}
}

func TestAPodWithoutResourcesHasNoAnnotation(t *testing.T) {
	o := observed{pod: podWith("main"), assignments: assigned()}
	if got := o.annotation(); got != "" {
		t.Errorf("the annotation is %s, want none", got)
	}
}

func TestAForgedAnnotationOfAPodWithoutResourcesIsReplaced(t *testing.T) {
	o := observed{pod: podWith("main"), assignments: assigned()}
	o.pod.Annotations = map[string]string{classes.EffectiveKey: "forged"}
	if got := o.annotation(); got != "{}" {
		t.Errorf("the annotation is %s, want one without classes", got)
	}
}

func TestAnAnnotationIsNotTooLong(t *testing.T) {
	pod, list := podWith(), assigned()
	for i := range 200 {
		c := ctr(fmt.Sprintf("container-%03d", i), fmt.Sprint(i), has("k8s.io/rdt", "gold", container), has("k8s.io/blockio", "", none))
		c.QosResources[0].Limited = strings.Repeat(`"`, 100)
		list.Containers = append(list.Containers, c)
	}

	o := observed{pod: pod, assignments: list}
	for range list.GetContainers() { // each time with one container fewer
		var got podClasses
		text := o.annotation()
		must.Do(t, json.Unmarshal([]byte(text), &got))
		listed := 0
		for _, c := range got.Containers {
			listed += len(c.QOSResources)
		}
		if len(text) > maxClasses || listed+got.Omitted != 2*len(list.GetContainers()) || listed == 0 {
			t.Errorf("%d containers: %d bytes with %d classes, and %d are omitted", len(list.GetContainers()), len(text), listed, got.Omitted)
		}
		list.Containers = list.GetContainers()[1:]
	}
}
