// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/apitest"
)

// TestAssignments compares the tables that the command prints.
func TestAssignments(t *testing.T) {
	f := newFixture(t)
	for _, test := range []struct {
		name string
		args []string
		want answer
	}{
		{"show every resource of every pod and container", nil, answer{Out: `
NAMESPACE    POD    CONTAINER  RESOURCE                CLASS             SOURCE   REQUESTED BY
default      web    <pod>      vendor.example/network  fast              pod      qos.noderesource.dev/pod
default      web    main       k8s.io/rdt              gold              pod      qos.noderesource.dev/pod
default      web    main       k8s.io/blockio          <system default>  -
kube-system  agent  <pod>      vendor.example/network  <system default>  -
kube-system  agent  main       k8s.io/rdt              bronze            default
kube-system  agent  main       k8s.io/blockio          <system default>  -
kube-system  agent  side       k8s.io/rdt              bronze            default
kube-system  agent  side       k8s.io/blockio          <system default>  -
`}},
		{"show a pod by its UID", []string{"uid-web"}, answer{Out: `
NAMESPACE  POD  CONTAINER  RESOURCE                CLASS             SOURCE  REQUESTED BY
default    web  <pod>      vendor.example/network  fast              pod     qos.noderesource.dev/pod
default    web  main       k8s.io/rdt              gold              pod     qos.noderesource.dev/pod
default    web  main       k8s.io/blockio          <system default>  -
`}},
		{"show that a namespace has no pods", []string{"-n", "empty"}, answer{Out: "No pods with QoS-class resources run on this node.\n"}},
		{"show a namespace without pods, in JSON", []string{"-n", "empty", "-o", "json"}, answer{Out: "{\n  \"pods\": [],\n  \"refusals\": [],\n  \"synchronized\": true,\n  \"evictions\": []\n}\n"}},
		{"list the pods of the node if no pod has the name", []string{"x/y"}, answer{
			Code: 1, Errors: "Error: no pod \"x/y\" with QoS-class resources is on this node; there are default/web, kube-system/agent\n",
		}},
		{"show the namespace of a pod that is in another namespace", []string{"other/web"}, answer{
			Code: 1, Errors: "Error: no pod \"other/web\" with QoS-class resources is on this node; there is default/web\n",
		}},
		{"show how to write a name without a namespace", []string{"web"}, answer{
			Code: 1, Errors: "Error: \"web\" is not the UID of a pod on this node; pods with this name: default/web\n",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantAnswer(t, test.want, f.ask(t, append([]string{"assignments"}, test.args...)...))
		})
	}
}

func TestAssignmentsShowRefusals(t *testing.T) {
	f := newFixture(t)
	if err := f.RunPod(t.Context(), "default", "late", "rdt=gold", "main"); err == nil {
		t.Fatal("a container got the class gold, although it is full")
	}

	got := f.ask(t, "assignments", "default/late")
	lines := strings.Split(strings.TrimSpace(got.Out), "\n")
	last := strings.Fields(lines[len(lines)-1])
	if got.Code != 0 || len(last) < 7 || strings.Join(last[:5], " ") != "default late main ClassFull 1" {
		t.Fatalf("answer is %+v; want the refusal", got)
	}

	if message := `pod default/late container main: class "gold" of k8s.io/rdt is full`; !strings.Contains(got.Out, message) {
		t.Errorf("answer is %+v; want the message %q", got, message)
	}

	if got := f.ask(t, "assignments", "default/web"); strings.Contains(got.Out, "REFUSED") {
		t.Errorf("another pod's refusal is shown: %+v", got)
	}
}

func TestAssignmentsShowEvictionTargets(t *testing.T) {
	f := newFixture(t)
	evicting := strings.Replace(apitest.Files, "  scope: pod\n", "  scope: pod\n  onClassRemoved: evict\n", 1)
	for _, files := range []string{evicting, strings.NewReplacer("{name: fast}", "{name: slow}", "[fast]", "[slow]").Replace(evicting)} {
		must(t, f.Load(t.Context(), files))
	}

	want := `
NAMESPACE  POD  CONTAINER  TO BE EVICTED  MESSAGE
default    web  <pod>      ClassRemoved   pod default/web: class "fast" of vendor.example/network was removed from the class files, and its resource has onClassRemoved: evict
`

	if got := f.ask(t, "assignments", "default/web"); got.Code != 0 || !strings.HasSuffix(got.Out, want) {
		t.Errorf("answer is %+v; want it to end with%s", got, want)
	}

	if got := f.ask(t, "assignments", "kube-system/agent"); strings.Contains(got.Out, "EVICTED") {
		t.Errorf("another pod's eviction is shown: %+v", got)
	}
}
