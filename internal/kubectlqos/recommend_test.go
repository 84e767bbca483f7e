// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// fileOf returns a class file with one class of block I/O.
func fileOf(t *testing.T, class, device, limit, bound string) *structpb.Struct {
	t.Helper()
	return must.Get(structpb.NewStruct(map[string]any{
		"apiVersion": "qos.noderesource.dev/v1alpha1", "kind": "QOSClassConfig", "resources": []any{map[string]any{
			"name": "k8s.io/blockio", "classes": []any{map[string]any{"name": class}},
			"blockio": map[string]any{"Classes": map[string]any{class: []any{map[string]any{"Devices": []any{device}, limit: bound}}}},
		}},
	}))(t)
}

// recommendAnswer is the answer of the plugin of node-1 about all pods.
func recommendAnswer(t *testing.T) *qosv1alpha1.RecommendResponse {
	t.Helper()
	of := func(namespace, pod, container, resource, present string, r *qosv1alpha1.ClassRecommendation) *qosv1alpha1.ClassRecommendation {
		r.Namespace, r.Pod, r.PodUid, r.Container, r.Resource, r.PresentClass = namespace, pod, "uid-"+pod, container, resource, present
		if r.GetProblem() == "" {
			r.From, r.To = blameAt(45, 0), blameAt(59, 45)
		}
		return r
	}
	wrote := func(need, most, bound, near, held float64) []*qosv1alpha1.ClassFigure {
		return []*qosv1alpha1.ClassFigure{{
			Limit: "ThrottleWriteBps", Name: "fs_writes_bytes_total", Part: "sda", Need: need, Most: most, Bound: bound, Close: near, Held: held,
		}}
	}
	const disk, cache, memory = "k8s.io/blockio", "k8s.io/rdt", "example.com/memory"
	return &qosv1alpha1.RecommendResponse{Recommendations: []*qosv1alpha1.ClassRecommendation{
		of("default", "web", "main", disk, "fast", &qosv1alpha1.ClassRecommendation{
			Outcome: "fits", Class: "medium", Figures: append(wrote(12.4e6, 31e6, 20e6, 0.02, 0), &qosv1alpha1.ClassFigure{
				Limit: "ThrottleReadIOPS", Name: "fs_reads_total", Part: "sda", Need: 90, Most: 120, Bound: 500,
			}), Left: 0.6, Mutable: true,
		}),
		of("default", "web", "main", cache, "gold", &qosv1alpha1.ClassRecommendation{
			Problem: "too little is recorded: 2m30s since the container started or its class changed, and 5m0s are needed; ask again in 2m30s",
		}),
		of("default", "web", "side", disk, "", &qosv1alpha1.ClassRecommendation{Outcome: "unused"}),
		of("default", "web", "", "example.com/pod", "slow", &qosv1alpha1.ClassRecommendation{
			Outcome: "fits", Class: "fast", Figures: wrote(9.9e6, 10e6, 20e6, 0, 0.4), Left: 0.5, Held: true, Mutable: true,
		}),
		of("shop", "cart", "main", disk, "fast", &qosv1alpha1.ClassRecommendation{
			Outcome: "add", Figures: wrote(480e6, 500e6, 600e6, 0, 0), Left: 0.2, Mutable: true, ClassFile: fileOf(t, "main-fit", "/dev/sda", "ThrottleWriteBps", "600M"),
		}),
		of("shop", "cart", "main", memory, "", &qosv1alpha1.ClassRecommendation{
			Outcome: "fits", Class: "small", Figures: []*qosv1alpha1.ClassFigure{{Limit: "memory.high", Name: "memory_bytes", Need: 400e6, Most: 410e6, Bound: 512e6}},
			Left: 0.22, Full: true, Mutable: true,
		}),
		of("shop", "cart", "sidecar", disk, "fast", &qosv1alpha1.ClassRecommendation{
			Outcome: "add", Figures: wrote(480e6, 500e6, 1200e6, 0, 0.8), Held: true, ClassFile: fileOf(t, "sidecar-fit", "/dev/sdb", "ThrottleWriteBps", "1200M"),
		}),
		of("data", "db", "main", disk, "fast", &qosv1alpha1.ClassRecommendation{
			Outcome: "fits", Class: "fast", Figures: wrote(270e6, 280e6, 300e6, 0, 0), Left: 0.1, Mutable: true,
		}),
	}}
}

// recommend answers for node-1 as the plugin would.
func (p *plugins) recommend(values url.Values) ([]byte, error) {
	p.mu.Lock()
	p.recommended = append(p.recommended, values.Encode())
	p.mu.Unlock()
	answer := &qosv1alpha1.RecommendResponse{}
	for _, r := range p.recommendations.GetRecommendations() {
		if r.GetPod() == values.Get("pod") && (values.Get("container") == "" || values.Get("container") == r.GetContainer()) {
			answer.Recommendations = append(answer.Recommendations, r)
		}
	}
	return protojson.Marshal(answer)
}

// newWorkloadsRig returns a rig with workloads "cart", whose two pods on node-1 have recommendations. Of the other pods, cart-3 is on
// node-2, which does not answer, and cart-4 has no node. The deployment "none" has no pods.
func newWorkloadsRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, "nodes.yaml", "pods.yaml").withPlugins(t)
	workload := func(kind, name, app string) {
		r.add(t, fmt.Sprintf("{apiVersion: apps/v1, kind: %s, metadata: {name: %s, namespace: shop}, spec: {selector: {matchLabels: {app: %s}}}}", kind, name, app))
	}
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
		workload(kind, "cart", "many")
	}
	workload("Deployment", "none", "none")
	r.addCart(t, "cart-1", "node-1")
	r.addCart(t, "cart-2", "node-1")
	r.addCart(t, "cart-3", "node-2")
	r.addCart(t, "cart-4", "")
	add := func(pod, bound string, value float64) *qosv1alpha1.ClassRecommendation {
		return &qosv1alpha1.ClassRecommendation{
			Namespace: "shop", Pod: pod, Container: "main", Resource: "k8s.io/blockio", Outcome: "add", ClassFile: fileOf(t, "main-fit", "/dev/sda", "ThrottleWriteBps", bound),
			Figures: []*qosv1alpha1.ClassFigure{{Limit: "ThrottleWriteBps", Name: "fs_writes_bytes_total", Part: "sda", Bound: value}},
		}
	}
	r.plugins.recommendations = &qosv1alpha1.RecommendResponse{
		Recommendations: []*qosv1alpha1.ClassRecommendation{add("cart-1", "900M", 900e6), add("cart-2", "100M", 100e6)},
	}
	return r
}

// addCart adds a pod of the workloads "cart".
func (r *rig) addCart(t *testing.T, name, node string) {
	t.Helper()
	r.add(t, fmt.Sprintf("{kind: Pod, metadata: {name: %s, namespace: shop, labels: {app: many}}, spec: {nodeName: %q}}", name, node))
}

// TestRecommendAsksForEachPodOfAWorkload: the class file of two pods has the class that the larger pod needs.
func TestRecommendAsksForEachPodOfAWorkload(t *testing.T) {
	r := newWorkloadsRig(t)
	const note = "Note: pod cart-3: node \"node-2\": " + notAnswering + "\n"
	for _, workload := range []string{"deployment/cart", "sts/cart", "daemonset.apps/cart"} {
		got := r.run(t, "recommend", workload, "-n", "shop")
		if got.Code != 0 || strings.Count(got.Out, "cart-") != 2 || got.Errors != note {
			t.Errorf("%s: answer is %+v", workload, got)
		}
		got = r.run(t, "recommend", workload, "-n", "shop", "-o", "yaml")
		if !strings.Contains(got.Out, "ThrottleWriteBps: 900M") || strings.Contains(got.Out, ": 100M\n") || got.Errors != note {
			t.Errorf("%s: answer is %+v", workload, got)
		}
	}
}

func TestRecommendFailsIfNothingIsKnownOfAnyPodOfAWorkload(t *testing.T) {
	r := newWorkloadsRig(t)
	got := r.run(t, "recommend", "deploy/none", "-n", "shop")
	if got.Code != 1 || !strings.Contains(got.Errors, `deployment "none" has no running pod, so nothing is recorded of it`) {
		t.Errorf("without pods: %+v", got)
	}
	r.plugins.fails["node-1"] = podError{"nothing is recorded"}
	got = r.run(t, "recommend", "deploy/cart", "-n", "shop")
	if got.Code != 1 || !strings.Contains(got.Errors, `deployment "cart": no node has an answer; the notes above have the reasons`) {
		t.Errorf("without an answer: %+v", got)
	}
}

func TestRecommendPrintsTheNotesOfTenPodsOfAWorkload(t *testing.T) {
	r := newWorkloadsRig(t)
	for i := range 12 {
		r.addCart(t, fmt.Sprintf("cart-5%d", i), "node-2") // with cart-3, 13 pods have no answer
	}
	const last = "Note: similar notes that are left out: 3; see that of one pod with: kubectl qos recommend POD\n"
	if got := r.run(t, "recommend", "deploy/cart", "-n", "shop"); strings.Count(got.Errors, "Note: pod") != 10 || !strings.Contains(got.Errors, last) {
		t.Errorf("notes are\n%s\nwant 10 of pods, and %q", got.Errors, last)
	}
}

func TestRecommendCompletesPodsAndWorkloads(t *testing.T) {
	r := newWorkloadsRig(t)
	for begun, want := range map[string]string{"deploy/": "deploy/cart\n", "sts/": "sts/cart\n", "ds/": "ds/cart\n", "": "cart-1\n"} {
		if got := r.run(t, "__complete", "recommend", "-n", "shop", begun); !strings.Contains(got.Out, want) {
			t.Errorf("%q is completed to %q, want %q among them", begun, got.Out, want)
		}
	}
}

func TestRecommendAsksForTheUIDOfThePod(t *testing.T) {
	r := newRig(t, "nodes.yaml", "pods.yaml").withPlugins(t)
	if got := r.run(t, "recommend", "pod/cart", "-n", "shop", "-c", "main"); got.Code != 0 {
		t.Fatalf("answer is %+v", got)
	}
	if want := []string{"container=main&namespace=shop&pod=cart&podUid=uid-cart"}; !slices.Equal(r.plugins.recommended, want) {
		t.Errorf("queries are %q, want %q", r.plugins.recommended, want)
	}
}

// TestARecommendedClassFilePassesTheCheck checks what -o yaml prints with the command "check": with classes to add, and without.
func TestARecommendedClassFilePassesTheCheck(t *testing.T) {
	for args, want := range map[string]string{
		"cart -n shop": "1 file, 1 resource, 2 classes: OK", "web": "1 file, 0 resources, 0 classes: OK", "db -n data": "1 file, 0 resources, 0 classes: OK",
	} {
		r := newRig(t, "nodes.yaml", "pods.yaml").withPlugins(t)
		got := r.run(t, append([]string{"recommend", "-o", "yaml"}, strings.Fields(args)...)...)
		file := writeFile(t, t.TempDir(), "class.yaml", got.Out)
		if checked := r.run(t, "check", file); checked.Code != 0 || !strings.HasPrefix(checked.Out, want) {
			t.Errorf("%s: check answers %+v for\n%s", args, checked, got.Out)
		}
	}
}
