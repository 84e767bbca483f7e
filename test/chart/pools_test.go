// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/yaml"
)

// pools are the labels of node pools, by name.
type pools map[string]map[string]string

// values returns the values of the chart with these pools. The class file of each pool has only a comment with the name
// of the pool.
func (p pools) values(t *testing.T) string {
	t.Helper()
	var list []any
	for _, name := range slices.Sorted(maps.Keys(p)) {
		list = append(list, map[string]any{"name": name, "nodeLabels": p[name], "classFiles": map[string]string{"classes.yaml": "# " + name}})
	}
	values, err := json.Marshal(map[string]any{"pools": list, "nodeSelector": map[string]string{"all": "yes"}})
	must(t, err)
	return string(values)
}

// pluginDaemons returns the DaemonSets of the plugin by their pools.
func (o objects) pluginDaemons(t *testing.T) map[string]*appsv1.DaemonSet {
	t.Helper()
	found := map[string]*appsv1.DaemonSet{}
	for name, object := range o {
		if !strings.HasPrefix(name, "DaemonSet qos-nri-plugin") {
			continue
		}
		daemons := &appsv1.DaemonSet{}
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, daemons, true))
		found[daemons.Labels["qos.noderesource.dev/nodes"]] = daemons
	}
	return found
}

// runsOn reports whether the pods of a DaemonSet may run on a node with labels, as the DaemonSet controller decides it.
func runsOn(t *testing.T, daemons *appsv1.DaemonSet, node map[string]string) bool {
	t.Helper()
	matches, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: daemons.Spec.Template.Spec}).Match(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: node}})
	must(t, err)
	return matches
}

// nodes returns the labels of one node for each combination of the pools' labels. For each key, a node has a value of
// one of the pools, another value, or no value.
func (p pools) nodes() []map[string]string {
	values := map[string][]string{}
	for _, labelled := range p {
		for key, value := range labelled {
			if !slices.Contains(values[key], value) {
				values[key] = append(values[key], value)
			}
		}
	}

	all := []map[string]string{{"kubernetes.io/os": "linux", "all": "yes"}}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		for _, node := range slices.Clone(all) {
			for _, value := range append(values[key], "other") {
				next := maps.Clone(node)
				next[key] = value
				all = append(all, next)
			}
		}
	}

	return all
}

// most returns the name of the pool that a node must belong to. A pool matches if the node has all of its labels. Of
// the matching pools, most returns the one with the most labels.
func (p pools) most(node map[string]string) string {
	found := "default"
	for name, labelled := range p {
		if labels.SelectorFromSet(labelled).Matches(labels.Set(node)) && len(labelled) > len(p[found]) {
			found = name
		}
	}
	return found
}

// TestEachNodeBelongsToTheMostSpecificPool checks that exactly one DaemonSet runs on each node: the DaemonSet of the pool
// that `most` returns for the node. None runs on a node that the value nodeSelector does not select.
func TestEachNodeBelongsToTheMostSpecificPool(t *testing.T) {
	for name, p := range map[string]pools{
		"no pools":                 {},
		"one pool":                 {"large": {"kind": "large"}},
		"pools of different nodes": {"large": {"kind": "large"}, "small": {"kind": "small"}},
		"each pool has the labels of the next larger one, and one more": {"large": {"kind": "large"}, "disks": {"kind": "large", "disk": "nvme"},
			"one": {"kind": "large", "disk": "nvme", "host": "a"}},
		"a pool has the labels of another, and two more":            {"large": {"kind": "large"}, "disks": {"kind": "large", "disk": "nvme", "zone": "a"}},
		"pools with two labels each":                                {"a": {"kind": "large", "disk": "nvme"}, "b": {"kind": "large", "disk": "hdd"}, "c": {"kind": "small", "disk": "nvme"}},
		"two pools, and a third for the nodes of both":              {"large": {"kind": "large"}, "disks": {"disk": "nvme"}, "both": {"kind": "large", "disk": "nvme"}},
		"a label with an empty value, and nodes without this label": {"empty": {"kind": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			daemons := chartObjects(t, namespace, p.values(t)).pluginDaemons(t)
			if len(daemons) != len(p)+1 {
				t.Fatalf("there are %d DaemonSets, want one for each of %d pools and the default", len(daemons), len(p))
			}

			for _, node := range p.nodes() {
				var got []string
				for _, pool := range slices.Sorted(maps.Keys(daemons)) {
					if runsOn(t, daemons[pool], node) {
						got = append(got, pool)
					}
				}
				if want := p.most(node); !slices.Equal(got, []string{want}) {
					t.Errorf("a node with %v gets the plugin from the pools %q, want %s", node, got, want)
				}
			}

			for pool, d := range daemons {
				if runsOn(t, d, map[string]string{"kubernetes.io/os": "windows", "all": "yes"}) || runsOn(t, d, map[string]string{"kubernetes.io/os": "linux"}) {
					t.Errorf("the DaemonSet of %s runs on nodes that nodeSelector does not select", pool)
				}
			}
		})
	}
}

func TestEachPoolHasItsOwnClassFilesAndPods(t *testing.T) {
	p := pools{"large": {"kind": "large"}, "small": {"kind": "small"}}
	found := chartObjects(t, namespace, p.values(t))
	daemons := found.pluginDaemons(t)
	for pool, suffix := range map[string]string{"default": "", "large": "-large", "small": "-small"} {
		d := daemons[pool]
		at := slices.IndexFunc(d.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "classes" })
		files := found["ConfigMap "+d.Spec.Template.Spec.Volumes[at].ConfigMap.Name]
		data, err := json.Marshal(files.Object["data"])
		if err != nil || files.GetName() != "qos-classes"+suffix || pool != "default" && !strings.Contains(string(data), "# "+pool) {
			t.Errorf("the pool %s has class files %s: %s (%v)", pool, files.GetName(), data, err)
		}
		selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
		for other, o := range daemons {
			if matches := selector.Matches(labels.Set(o.Spec.Template.Labels)); err != nil || matches != (other == pool) {
				t.Errorf("the DaemonSet of %s selects pods of %s: %t (%v)", pool, other, matches, err)
			}
		}
	}
}

// TestAnUninstallThatResetsClassesReplacesTheClassFilesOfAllPools: before the uninstall, hooks of Helm replace the class
// files by files without classes.
func TestAnUninstallThatResetsClassesReplacesTheClassFilesOfAllPools(t *testing.T) {
	p := pools{"large": {"kind": "large"}, "small": {"kind": "small"}}
	usual := chartObjects(t, namespace, p.values(t))
	found := chartObjects(t, namespace, strings.Replace(p.values(t), "{", "{\"resetClasses\": true, ", 1))
	for name, object := range usual {
		if diff := cmp.Diff(object, found[name]); diff != "" {
			t.Errorf("resetClasses changes what is installed: %s (-without +with):\n%s", name, diff)
		}
	}

	var noClasses corev1.ConfigMap
	must(t, yaml.Unmarshal(readFile(t, "uninstall/no-classes.yaml"), &noClasses))

	for _, name := range []string{"qos-classes", "qos-classes-large", "qos-classes-small"} {
		hook := found["pre-delete hook: ConfigMap "+name]
		if hook == nil || usual["ConfigMap "+name] == nil {
			t.Fatalf("the hooks do not replace the class files %s", name)
		}
		// Helm 4 deletes only objects with these metadata: checkOwnership in pkg/action/validate.go.
		owner := []string{
			hook.GetLabels()["app.kubernetes.io/managed-by"],
			hook.GetAnnotations()["meta.helm.sh/release-name"], hook.GetAnnotations()["meta.helm.sh/release-namespace"],
		}
		if !slices.Equal(owner, []string{"Helm", "qos", namespace}) {
			t.Errorf("%s is not a part of the release: %v", name, hook.Object["metadata"])
		}
		files, _, _ := unstructured.NestedStringMap(hook.Object, "data")
		if diff := cmp.Diff(noClasses.Data, files); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestTwoPoolsThatFitTheSameNodeEquallyWellAreRefused(t *testing.T) {
	const remedy = "neither pool is more specific; give one of them all nodeLabels of the other and one more, or add a pool with exactly these labels"
	for name, test := range map[string]struct {
		pools
		labels string
	}{
		"different labels": {pools{"a": {"kind": "large"}, "b": {"disk": "nvme"}}, "disk=nvme, kind=large"},
		"the same labels":  {pools{"a": {"kind": "large"}, "b": {"kind": "large"}}, "kind=large"},
		"some in common":   {pools{"a": {"kind": "large", "zone": "a"}, "b": {"kind": "large", "disk": "nvme"}}, "disk=nvme, kind=large, zone=a"},
		"a third pool needs more labels than both together": {
			pools{"a": {"kind": "large"}, "b": {"disk": "nvme"}, "c": {"kind": "large", "disk": "nvme", "zone": "a"}}, "disk=nvme, kind=large"},
	} {
		t.Run(name, func(t *testing.T) {
			wantRefusal(t, test.values(t), fmt.Sprintf("pools: a node with the labels %s fits both %q and %q, and %s", test.labels, "a", "b", remedy))
		})
	}
}

func TestTwoPoolsWithTheSameNameAreRefused(t *testing.T) {
	wantRefusal(t, `{pools: [{name: a, nodeLabels: {kind: large}, classFiles: {a.yaml: x}}, {name: a, nodeLabels: {kind: small}, classFiles: {a.yaml: x}}]}`,
		`pools: two pools have the name "a"; rename one of them`)
}
