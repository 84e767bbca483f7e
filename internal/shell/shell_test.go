// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package shell_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/shell"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

var noon = timestamppb.New(time.Date(2026, 5, 1, 12, 0, 0, 5e8, time.UTC))

func TestStatusPrints(t *testing.T) {
	rdt := func(classes ...*qosv1alpha1.QOSResourceClassInfo) *qosv1alpha1.ResourcesInfo {
		return &qosv1alpha1.ResourcesInfo{ContainerQosResources: []*qosv1alpha1.QOSResourceInfo{{Name: "k8s.io/rdt", Classes: classes}}}
	}

	for _, test := range []struct {
		name   string
		status *qosv1alpha1.StatusResponse
		want   string
	}{
		{"a plugin that has just started", &qosv1alpha1.StatusResponse{Plugin: &qosv1alpha1.PluginInfo{Version: "v1"}}, `
Plugin:   v1, started never
Runtime:  never registered
Config:   none in force

No QoS-class resources are offered.
`},
		{"a runtime that is away", &qosv1alpha1.StatusResponse{
			Plugin:  &qosv1alpha1.PluginInfo{Version: "v1", StartedAt: noon},
			Runtime: &qosv1alpha1.RuntimeInfo{Name: "cri-o", Version: "1.35.0", RegisteredAt: noon},
			Config:  &qosv1alpha1.ConfigInfo{Generation: 2, Hash: "abc", LoadedAt: noon},
		}, `
Plugin:   v1, started 2026-05-01T12:00:00Z
Runtime:  cri-o 1.35.0, NOT registered now; last registered 2026-05-01T12:00:00Z
Config:   generation 2, hash abc, loaded 2026-05-01T12:00:00Z: no files

No QoS-class resources are offered.
`},
		{"classes that drain, and those that work in part", &qosv1alpha1.StatusResponse{Resources: rdt(
			&qosv1alpha1.QOSResourceClassInfo{Name: "gold", Capacity: 2, InUse: 3, Description: "unseen", Degraded: "half of it"},
			&qosv1alpha1.QOSResourceClassInfo{Name: "old", InUse: 1, Draining: true},
		)}, `
Plugin:   , started never
Runtime:  never registered
Config:   none in force

RESOURCE    SCOPE      MUTABLE  DEFAULT CLASS
k8s.io/rdt  container  no       <system default>

RESOURCE    CLASS  CAPACITY  IN USE  EXTENDED RESOURCE  NOTE
k8s.io/rdt  gold   2         3                          degraded: half of it
k8s.io/rdt  old    -         1                          draining: no longer configured
`},
		{"resources that the machine does not have", &qosv1alpha1.StatusResponse{UnavailableResources: []*qosv1alpha1.UnavailableResource{
			{Name: "k8s.io/rdt", Scope: qosv1alpha1.Scope_SCOPE_CONTAINER, Reason: "NoCPUSupport", Message: "use another CPU"},
		}}, `
Plugin:   , started never
Runtime:  never registered
Config:   none in force

UNAVAILABLE  SCOPE      REASON        MESSAGE
k8s.io/rdt   container  NoCPUSupport  use another CPU
`},
		{"every problem of class files on a line", &qosv1alpha1.StatusResponse{
			Resources: rdt(),
			Config:    &qosv1alpha1.ConfigInfo{LastError: "a.yaml:1: kind: wrong\na.yaml:2: name: \x1b[31mwrong", LastErrorAt: noon},
		}, `
Plugin:   , started never
Runtime:  never registered
Config:   none in force

RESOURCE    SCOPE      MUTABLE  DEFAULT CLASS
k8s.io/rdt  container  no       <system default>

The class files that were read at 2026-05-01T12:00:00Z are not in force:
  a.yaml:1: kind: wrong
  a.yaml:2: name:  [31mwrong
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(strings.TrimPrefix(test.want, "\n"), shell.Status(test.status)); diff != "" {
				t.Errorf("text differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTablesAreAlignedByCharactersAndHaveNoControlCharacters(t *testing.T) {
	list := &qosv1alpha1.ListAssignmentsResponse{Pods: []*qosv1alpha1.PodAssignments{{Namespace: "ñandú", Name: "a\nb\x1b[2J", Containers: []*qosv1alpha1.ContainerAssignments{
		{Name: "main", QosResources: []*qosv1alpha1.Assignment{{Name: "k8s.io/rdt", Class: "gold", Source: qosv1alpha1.Source_SOURCE_ADOPTED}}},
	}}}}
	want := strings.TrimPrefix(`
NAMESPACE  POD      CONTAINER  RESOURCE    CLASS  SOURCE   REQUESTED BY
ñandú      a b [2J  main       k8s.io/rdt  gold   adopted
`, "\n")
	if diff := cmp.Diff(want, shell.Assignments(list)); diff != "" {
		t.Errorf("text differs (-want +got):\n%s", diff)
	}
}

func TestAChangeOfAnUnknownContainerHasNoFormerClass(t *testing.T) {
	pod := &qosv1alpha1.PodAssignments{Namespace: "default", Name: "web"}
	after := &qosv1alpha1.ContainerAssignments{Name: "main", QosResources: []*qosv1alpha1.Assignment{{Name: "k8s.io/rdt", Class: "gold"}}}
	want := "pod default/web container main: k8s.io/rdt is gold now\n"
	if got := shell.Change(pod, nil, after, []classes.Pair{{Resource: "k8s.io/rdt", Class: "gold"}}); got != want {
		t.Errorf("text is %q, want %q", got, want)
	}
}

// TestAJSONDocumentHasAllFieldsAndTheSameWhiteSpaceInEachBuild: protojson omits default values, and varies its white space.
func TestAJSONDocumentHasAllFieldsAndTheSameWhiteSpaceInEachBuild(t *testing.T) {
	message := &qosv1alpha1.QOSResourceClassInfo{Name: "gold", Capacity: 2}
	want := `{
  "name": "gold",
  "capacity": "2",
  "inUse": "0",
  "description": "",
  "degraded": "",
  "extendedResource": "",
  "draining": false,
  "conditions": [],
  "values": {}
}
`

	got, err := shell.Document(message, shell.JSON)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, document (-want +got):\n%s", err, diff)
	}
}

func TestLongListsOfCandidatesAreCutShort(t *testing.T) {
	list := &qosv1alpha1.ListAssignmentsResponse{}
	for _, name := range strings.Split("abcdefghij", "") {
		list.Pods = append(list.Pods, &qosv1alpha1.PodAssignments{Namespace: "n", Name: name})
	}
	_, err := shell.SelectPod(list, "n/none")
	if err == nil || !strings.HasSuffix(err.Error(), "there are n/a, n/b, n/c, n/d, n/e, n/f, n/g, n/h and 2 more") {
		t.Errorf("error is %v", err)
	}
}
