// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

const (
	// withDefaults is a namespace with default classes. bounded is a namespace in which the policies limit the size of
	// containers' environment variables.
	withDefaults = "defaults"
	bounded      = "bounded"

	podAnnotation      = "qos.noderesource.dev/pod"
	requiredAnnotation = "required-plugins.noderesource.dev"
	requiredPlugin     = "[ qos-nri-plugin ]"
)

// containerResources lists the QoS resources of containers in these tests, in the format of the policies.
const containerResources = "'rdt', 'blockio', 'vendor.example/xyz-qos'"

// ownPolicies is a kustomization with which an administrator replaces the lists of QoS resources in the policies, as in
// docs/policies.md.
const ownPolicies = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%s]
patches:
- target: {labelSelector: qos.noderesource.dev/lists=resources}
  patch: |
    - {op: replace, path: /spec/variables/0/expression, value: "[RESOURCES]"}
    - {op: replace, path: /spec/variables/1/expression, value: "['qos.noderesource.dev/network']"}
`

// defaults has the namespaces withDefaults and bounded, and the default classes of withDefaults.
const defaults = `apiVersion: v1
kind: Namespace
metadata: {name: defaults}
---
apiVersion: v1
kind: Namespace
metadata: {name: bounded, labels: {qos.noderesource.dev/bound-environments: enabled}}
---
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSLimitRange
metadata: {name: defaults, namespace: defaults}
spec:
  limits:
  - type: Pod
    qosResources: [{name: qos.noderesource.dev/network, default: slow}]
  - type: Container
    qosResources: [{name: blockio, default: standard}, {name: vendor.example/xyz-qos, default: normal}]
`

// request is a row of the table: a pod, and the expected answer of the API server.
type request struct {
	Name        string
	Defaults    bool
	Bounded     bool
	Annotations map[string]string
	Init        []requester
	Containers  []requester
	// Refused is a part of the error with which the API server refuses the pod. It is empty if the API server accepts the
	// pod. Pod is the value of podAnnotation after admission, if admission changes it. The field With maps containers to
	// the units that the policies add.
	Refused, Pod string
	With         map[string]map[string]any
}

type requester struct {
	Name          string
	Units         map[string]any
	RestartPolicy corev1.ContainerRestartPolicy
	Env           []corev1.EnvVar
	EnvFrom       []corev1.EnvFromSource
}

func (r *requester) container() corev1.Container {
	c := corev1.Container{Name: r.Name, Image: "none", Env: r.Env, EnvFrom: r.EnvFrom}
	if r.RestartPolicy != "" {
		c.RestartPolicy = &r.RestartPolicy
	}
	c.Resources.Limits = quantities(r.Units)
	return c
}

// quantities converts units to a resource list, as in the limits of a container.
func quantities(units map[string]any) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, amount := range units {
		if !strings.Contains(name, "/") && name != "memory" && !strings.HasPrefix(name, "hugepages-") {
			name = "qos.noderesource.dev/" + name
		}
		list[corev1.ResourceName(name)] = resource.MustParse(fmt.Sprint(amount))
	}
	return list
}

func (r *request) manifest(t *testing.T) string {
	t.Helper()
	object := corev1.Pod{}
	object.APIVersion, object.Kind, object.Name, object.Namespace = "v1", "Pod", "request", "default"
	object.Annotations = r.Annotations
	if r.Defaults {
		object.Namespace = withDefaults
	}

	if r.Bounded {
		object.Namespace = bounded
	}

	for _, c := range r.Init {
		object.Spec.InitContainers = append(object.Spec.InitContainers, c.container())
	}

	for _, c := range r.Containers {
		object.Spec.Containers = append(object.Spec.Containers, c.container())
	}

	text, err := json.Marshal(object)
	must(t, err)
	return string(text)
}

// tryRequests sends each row of the table to the API server as a dry run.
func tryRequests(t *testing.T, n *node) {
	text, err := os.ReadFile("testdata/requests.yaml")
	must(t, err)
	text = bytes.ReplaceAll(text, []byte("COMMAS"), []byte(`"`+strings.Repeat(",", 10_000)+`"`))
	text = bytes.ReplaceAll(text, []byte("LARGE"), []byte(`"`+strings.Repeat("x", 768<<10)+`"`))
	var requests []request
	must(t, yaml.UnmarshalStrict(text, &requests))
	for _, r := range requests {
		t.Run(r.Name, func(t *testing.T) {
			output, err := n.tryWith(r.manifest(t), "create", "--dry-run=server", "-o", "json", "-f", "-")
			switch {
			case r.Refused != "" && (err == nil || !strings.Contains(output, r.Refused)):
				t.Errorf("%s\nwant it refused: %s", output, r.Refused)
			case r.Refused == "" && err != nil:
				t.Errorf("%s\nwant it accepted", output)
			case r.Refused == "":
				r.compare(t, []byte(output))
			}
		})
	}
}

// compare checks the pod that the API server has returned for the request.
func (r *request) compare(t *testing.T, output []byte) {
	t.Helper()
	var got corev1.Pod
	must(t, json.Unmarshal(output, &got))
	annotations := maps.Clone(r.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}

	if r.Pod != "" {
		annotations[podAnnotation] = r.Pod
	}

	if r.asksForClasses() {
		annotations[requiredAnnotation] = requiredPlugin
	}

	delete(annotations, "qos.noderesource.dev/classes") // policies remove it
	if diff := cmp.Diff(annotations, got.Annotations, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}

	asked := slices.Concat(r.Containers, r.Init)
	for i, c := range slices.Concat(got.Spec.Containers, got.Spec.InitContainers) {
		want := quantities(asked[i].Units)
		maps.Copy(want, quantities(r.With[c.Name]))
		for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
			if diff := cmp.Diff(want, list, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("units of container %s (-want +got):\n%s", c.Name, diff)
			}
		}
	}
}

// asksForClasses reports whether the pod, as changed by admission, requests classes. The runtime of such a pod must have the
// plugin.
func (r *request) asksForClasses() bool {
	for key := range r.Annotations {
		if strings.Contains(key, "qos.noderesource.dev/") || strings.Contains(key, ".resources.kubernetes.io/") {
			return true
		}
	}

	ours := func(units map[string]any) bool {
		for name := range quantities(units) {
			if strings.HasPrefix(string(name), "qos.noderesource.dev/") || strings.HasPrefix(string(name), "vendor.example/") {
				return true
			}
		}
		return false
	}

	for _, c := range slices.Concat(r.Containers, r.Init) {
		if ours(c.Units) {
			return true
		}
	}

	return len(r.With) > 0
}
