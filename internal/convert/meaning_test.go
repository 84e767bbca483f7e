// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

type qosRequest struct{ Name, Class string }

type kepContainer struct {
	Name      string
	Resources struct {
		Limits       map[string]string
		Claims       []struct{ Name string }
		QOSResources []qosRequest `yaml:"qosResources"`
	}
}

// kepObject is a pod before or after the conversion.
type kepObject struct {
	Kind     string
	Metadata struct {
		Name        string
		Annotations map[string]string
	}
	Spec struct {
		QOSResources   []qosRequest `yaml:"qosResources"`
		Containers     []kepContainer
		InitContainers []kepContainer `yaml:"initContainers"`
		ResourceClaims []struct {
			Name     string
			Template string `yaml:"resourceClaimTemplateName"`
		} `yaml:"resourceClaims"`
	}
}

func (o *kepObject) all() []kepContainer { return append(o.Spec.InitContainers, o.Spec.Containers...) }

func objects(t *testing.T, text []byte) []kepObject {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var all []kepObject
	for {
		var o kepObject
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		all = append(all, o)
	}
}

// asked returns the classes that a pod requests in the KEP's form. A pod's request for a container-scope resource applies to
// all containers without a request of their own. A key of the returned map consists of the container's name, a space and
// the resource. For the pod itself, the name is empty.
func asked(o *kepObject) map[string]string {
	classesOf := map[string]string{}
	for _, container := range o.all() {
		for _, r := range append(o.Spec.QOSResources, container.Resources.QOSResources...) {
			if name := classes.CanonicalResource(r.Name); name != "vendor.example/net" {
				classesOf[container.Name+" "+name] = r.Class
			}
		}
	}
	for _, r := range o.Spec.QOSResources {
		if r.Name == "vendor.example/net" {
			classesOf[" "+r.Name] = r.Class
		}
	}
	maps.DeleteFunc(classesOf, func(_, class string) bool { return class == "" })
	return classesOf
}

// given returns the classes that a node assigns to a converted pod and its containers. The keys of the returned map have
// the same form as the keys of the map that asked returns.
func given(t *testing.T, catalog *classes.Catalog, o *kepObject) map[string]string {
	t.Helper()
	classesOf := map[string]string{}
	resolve := func(container string, allocated map[string]string) {
		assignments, err := catalog.Resolve(classes.Holder{
			PodName: "web", Container: container, PodAnnotations: o.Metadata.Annotations, ContainerAnnotations: allocated,
		})
		if err != nil {
			t.Errorf("a node refuses the converted request: %v", err)
		}
		for _, a := range assignments {
			if a.Class != "" && a.Resource != "vendor.example/disk" {
				classesOf[container+" "+a.Resource] = a.Class
			}
		}
	}
	resolve("", nil)
	counted := 0
	for _, container := range o.all() {
		allocated := map[string]string{}
		for key, count := range container.Resources.Limits {
			if key == "vendor.example/net.fast" {
				counted++
			}
			if i := strings.LastIndex(key, "."); strings.Contains(key, "/") {
				if count != "1" {
					t.Errorf("%s of %s is %s", key, container.Name, count)
				}
				resource := strings.Replace(key[:i], "qos.noderesource.dev/", "k8s.io/", 1)
				allocated[classes.AllocatedKeyPrefix+key[i+1:]] = resource + "=" + key[i+1:]
			}
		}
		resolve(container.Name, allocated)
	}
	// The only class of vendor.example/net is fast, so this is 1 if the pod has it, and otherwise 0.
	if want := len(classesOf[" vendor.example/net"]) / len("fast"); counted != want {
		t.Errorf("the scheduler counts the pod's class %d times, not %d", counted, want)
	}
	return classesOf
}

func TestConvertedPodsGetTheClassesThatTheKEPRequests(t *testing.T) {
	offer := func(name string, scope classes.Scope, names ...string) classes.Offer {
		o := classes.Offer{Resource: classes.Resource{Name: name, Scope: scope}}
		for _, class := range names {
			o.Classes = append(o.Classes, classes.Class{Name: class})
		}
		return o
	}
	catalog := classes.NewCatalog([]classes.Offer{
		offer("k8s.io/rdt", classes.ContainerScope, "gold", "silver"), offer("k8s.io/blockio", classes.ContainerScope, "high"),
		offer("vendor.example/net", classes.PodScope, "fast"), offer("vendor.example/disk", classes.ContainerScope, "slow"),
	})
	for seed := range uint64(300) {
		text, _ := generate(seed, (*author).pod)
		result := mustConvert(t, text, toLimits())
		before, after := objects(t, []byte(text)), objects(t, result.Text)
		for i := range before {
			if diff := cmp.Diff(asked(&before[i]), given(t, catalog, &after[i])); diff != "" {
				t.Errorf("classes (-asked +given):\n%s", diff)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%s\n---- became\n%s", seed, text, result.Text)
		}
	}
}
