// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"slices"
	"strings"
	"testing"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

const rules = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: vendor.example/xyz-qos
  defaultClass: low
  match:
  - {name: exempt, class: "", namespaces: [kube-system]}
  - {name: best-effort, class: lowest, podQOS: [BestEffort]}
  - {name: web, class: middle, labels: {app: web}}
  - {name: pinned, class: middle, imageDigests: ["sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"]}
  classes: [{name: high, capacity: 1}, {name: middle}, {name: low}, {name: lowest}]
  external: {}
- name: vendor.example/net
  scope: pod
  match: [{name: best-effort, class: slow, podQOS: [BestEffort]}]
  classes: [{name: fast, capacity: 1}, {name: slow}]
  external: {}
`

// runIn starts a container of a pod.
func (r *machineRig) runIn(t *testing.T, pod nriruntime.PodConfig, digest string) (podID, id string) {
	t.Helper()
	podID = r.podWith(t, pod)
	return podID, r.runWith(t, podID, nriruntime.ContainerConfig{Name: "main", ImageDigest: digest})
}

func TestRulesDecideTheClassesOfPodsThatRequestNothing(t *testing.T) {
	for _, c := range []struct {
		name         string
		pod          nriruntime.PodConfig
		digest, want string
	}{
		{"a rule for a namespace", nriruntime.PodConfig{Namespace: "kube-system"}, "", "/rule exempt"},
		{"a rule for a Pod QoS class, with the cgroup driver systemd", nriruntime.PodConfig{
			CgroupParent: "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu.slice",
		}, "", "lowest/rule best-effort"},
		{"a rule for a Pod QoS class, with the cgroup driver cgroupfs", nriruntime.PodConfig{CgroupParent: "/kubepods/besteffort/podu"}, "", "lowest/rule best-effort"},
		{"a rule for labels", nriruntime.PodConfig{Labels: map[string]string{"app": "web"}}, "", "middle/rule web"},
		{"a rule for an image", nriruntime.PodConfig{}, "sha256:" + strings.Repeat("0123456789abcdef", 4), "middle/rule pinned"},
		{"no rule that matches", nriruntime.PodConfig{}, "", "low/default"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newMachineRigWith(t, rules)
			c.pod.Name = "a"
			_, id := r.runIn(t, c.pod, c.digest)
			r.wantReported(t, id, xyz, c.want)

			r.startNewWith(t, rules)
			r.wantReported(t, id, xyz, c.want)
		})
	}
}

func TestRulesApplyToThePodItself(t *testing.T) {
	r := newMachineRigWith(t, rules)
	pod, _ := r.runIn(t, nriruntime.PodConfig{Name: "a", CgroupParent: "/kubepods/besteffort/podu"}, "")
	r.wantReported(t, pod, netQoS, "slow/rule best-effort")
}

func TestRunningContainersFollowChangedRules(t *testing.T) {
	r := newMachineRigWith(t, rules)
	_, id := r.runIn(t, nriruntime.PodConfig{Name: "a", Labels: map[string]string{"app": "web"}}, "")
	r.wantReported(t, id, xyz, "middle/rule web")

	r.mustConfigure(t, strings.Replace(rules, "{name: web, class: middle", "{name: sites, class: lowest", 1))
	r.wantReported(t, id, xyz, "lowest/rule sites")
	r.mustConfigure(t, strings.Replace(rules, "labels: {app: web}", "labels: {app: none}", 1))
	r.wantReported(t, id, xyz, "low/default")
}

func TestTheNodeAPIHasThePodQOSClassOfEachPod(t *testing.T) {
	r := newMachineRigWith(t, rules)
	for name, parent := range map[string]string{
		"Guaranteed": "/kubepods/poda", "Burstable": "/kubepods/burstable/podb", "BestEffort": "kubepods-besteffort-podc.slice", "": "/other/podd",
	} {
		r.runIn(t, nriruntime.PodConfig{Name: "p" + name, CgroupParent: parent}, "")
	}

	list, err := r.world.API.ListAssignments(t.Context(), &qosv1alpha1.ListAssignmentsRequest{})
	must(t, err)
	for _, pod := range list.GetPods() {
		var got, want []string
		for _, a := range pod.GetKubernetesResources() {
			got = append(got, a.GetName()+"="+a.GetClass())
		}
		if class := strings.TrimPrefix(pod.GetName(), "p"); class != "" {
			want = []string{"pod-qos=" + class}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pod %s has %v, want %v", pod.GetName(), got, want)
		}
	}
	if len(list.GetPods()) != 4 {
		t.Errorf("%d pods are listed, want 4", len(list.GetPods()))
	}
}
