// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/convert"
)

func node(name string, status v1alpha1.NodeQOSResourcesStatus) v1alpha1.NodeQOSResources {
	return v1alpha1.NodeQOSResources{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: status}
}

func info(name string, names ...string) v1alpha1.QOSResourceInfo {
	r := v1alpha1.QOSResourceInfo{Name: name}
	for _, class := range names {
		r.Classes = append(r.Classes, v1alpha1.QOSResourceClassInfo{Name: class})
	}
	return r
}

func TestKnownFromNodesHasTheClassesOfAllNodes(t *testing.T) {
	nodes := []v1alpha1.NodeQOSResources{
		node("a", v1alpha1.NodeQOSResourcesStatus{
			QOSResources:         v1alpha1.QOSResourceStatus{ContainerQOSResources: []v1alpha1.QOSResourceInfo{info("k8s.io/rdt", "gold")}},
			UnavailableResources: []v1alpha1.UnavailableResource{{Name: "vendor.example/net", Scope: v1alpha1.ScopePod}, {Name: "vendor.example/away"}},
		}),
		node("b", v1alpha1.NodeQOSResourcesStatus{QOSResources: v1alpha1.QOSResourceStatus{
			ContainerQOSResources: []v1alpha1.QOSResourceInfo{info("k8s.io/rdt", "gold", "silver")},
			PodQOSResources:       []v1alpha1.QOSResourceInfo{info("vendor.example/net", "fast")},
			VolumeQOSResources:    []v1alpha1.QOSResourceInfo{info("vendor.example/volume", "fast")},
		}}),
	}
	all, err := convert.KnownFromNodes(nodes)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, sections, want string }{ // `want` is the converted spec, or the error
		{
			"classes of all nodes", "    container: [{name: rdt, classes: [{name: x}]}]\n    pod: [{name: vendor.example/net, classes: [{name: x}]}]\n",
			`a.yaml:7: ResourceQuota limits: spec.qosResources.container[0].classes[0]: class "x" of k8s.io/rdt does not exist in the cluster; available: gold, silver` +
				"\n" + `a.yaml:8: ResourceQuota limits: spec.qosResources.pod[0].classes[0]: class "x" of vendor.example/net does not exist in the cluster; available: fast`,
		},
		{
			"any class of a resource that is unavailable on all nodes", "    container: [{name: vendor.example/away, classes: [{name: x, capacity: 3}]}]\n",
			"  hard:\n    requests.vendor.example/away.x: \"3\"\n",
		},
		{
			"an error for a resource of volumes", "    container: [{name: vendor.example/volume, classes: []}]\n",
			"a.yaml:7: ResourceQuota limits: spec.qosResources.container[0]: vendor.example/volume is for volumes, which have no qosResources; " +
				"request it in annotation volumes.qos.noderesource.dev/CONTAINER as PATH=CLASS",
		},
		{
			"an error for a resource that no node has", "    container: [{name: blockio, classes: []}]\n",
			"a.yaml:7: ResourceQuota limits: spec.qosResources.container[0]: resource k8s.io/blockio does not exist in the cluster; available: k8s.io/rdt, vendor.example/away, vendor.example/net, vendor.example/volume",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			result, err := tryConvert(quota(test.sections), convert.Options{Known: all})
			_, got, _ := strings.Cut(string(result.Text), "spec:\n")
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAResourceWithUnknownClassesCanBeRequestedInAnyClass(t *testing.T) {
	all, err := convert.KnownFromNodes([]v1alpha1.NodeQOSResources{
		node("a", v1alpha1.NodeQOSResourcesStatus{UnavailableResources: []v1alpha1.UnavailableResource{{Name: "k8s.io/rdt", Scope: v1alpha1.ScopeContainer}}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	wantProblems(t, pod("", "", oneGold), convert.Options{Known: all}, "")
}

func TestNodesWithDifferentScopesAreAnError(t *testing.T) {
	_, err := convert.KnownFromNodes([]v1alpha1.NodeQOSResources{
		node("a", v1alpha1.NodeQOSResourcesStatus{UnavailableResources: []v1alpha1.UnavailableResource{{Name: "vendor.example/net", Scope: v1alpha1.ScopePod}}}),
		node("b", v1alpha1.NodeQOSResourcesStatus{QOSResources: v1alpha1.QOSResourceStatus{ContainerQOSResources: []v1alpha1.QOSResourceInfo{info("vendor.example/net", "fast")}}}),
	})
	const want = "node b has vendor.example/net in the scope container, but another node has it in the scope pod; give the resource one scope on all nodes"
	if err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
}

func TestConvertWithoutKnownResources(t *testing.T) {
	for _, test := range []struct {
		name, text, want string
		notes            []string
	}{
		{
			"rdt of a pod is for its containers", pod("", "  qosResources: [{name: rdt, class: gold}]\n", "      {}\n"),
			pod("", "", "      limits:\n        qos.noderesource.dev/rdt.gold: 1\n"), nil,
		},
		{
			"a resource without a known scope is requested by annotation, with a note", pod("", "  qosResources: [{name: vendor.example/net, class: fast}]\n", "      {}\n"),
			strings.Replace(pod("  annotations:\n    qos.noderesource.dev/pod: vendor.example/net=fast\n", "", ""), "resources:\n", "resources: {}\n", 1),
			[]string{"the scope of vendor.example/net is unknown, so the pod requests the class by annotation, and the scheduler does not see annotations; " +
				"pass --class-files or --from-cluster"},
		},
		{
			"a quota that allows no class", quota("    container: [{name: rdt, classes: []}]\n"),
			"apiVersion: v1\nkind: ResourceQuota\nmetadata:\n  name: limits\n  annotations:\n    qos.noderesource.dev/allowed-classes: rdt=\nspec:\n  hard: {}\n",
			[]string{"the classes that the ResourceQuota does not list are forbidden only where the policies qos-allowed-classes and qos-allowed-classes-of-claims are installed"},
		},
		{"a text without the fields is not changed, even if it is not YAML", "{{ template }}: [\r\n\x00", "{{ template }}: [\r\n\x00", nil},
		{
			"objects of this project's API are not changed", "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSLimitRange\nspec: {limits: [{qosResources: []}]}\n",
			"apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSLimitRange\nspec: {limits: [{qosResources: []}]}\n", nil,
		},
		{
			"an annotation on an object that is not a pod has a note", "apiVersion: example.org/v1\nkind: Fleet\nmetadata: {name: a}\nspec: {containers: [{name: a, resources: {qosResources: [{name: rdt, class: ''}]}}]}\n",
			"apiVersion: example.org/v1\nkind: Fleet\nmetadata: {name: a, annotations: {container.qos.noderesource.dev/a: rdt=}}\nspec: {containers: [{name: a, resources: {}}]}\n",
			[]string{"the annotations are set on the Fleet itself; check that its controller copies them to the pods"},
		},
	} {
		t.Run(test.name, func(t *testing.T) { wantResult(t, test.text, convert.Options{}, test.want, test.notes...) })
	}
}

func TestJoinReturnsOneStream(t *testing.T) {
	for _, test := range []struct {
		name  string
		texts []string
		want  string
	}{
		{"from one text, which does not change", []string{"\ufeffa: 1"}, "\ufeffa: 1"},
		{"with a separator that has the line end of the next text, whose byte order mark is removed", []string{"a: 1", "\ufeffb: 2\r\n"}, "a: 1\n---\r\nb: 2\r\n"},
		{"without a separator if the next text has one", []string{"a: 1\n", "# b\n--- # b\nb: 2\n"}, "a: 1\n# b\n--- # b\nb: 2\n"},
		{"with an end marker before directives", []string{"a: 1\n", "%YAML 1.1\n---\nb: 2\n"}, "a: 1\n...\n%YAML 1.1\n---\nb: 2\n"},
		{"without empty texts", []string{"\n", "a: 1\n", "  "}, "a: 1\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var texts [][]byte
			for _, text := range test.texts {
				texts = append(texts, []byte(text))
			}
			if diff := cmp.Diff(test.want, string(convert.Join(texts))); diff != "" {
				t.Errorf("stream (-want +got):\n%s", diff)
			}
		})
	}
}
