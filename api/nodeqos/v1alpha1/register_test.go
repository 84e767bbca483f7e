// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"os"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

func TestASchemeDecodesTheTypesOfTheAPI(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	got, _, err := decoder.Decode([]byte(`{"apiVersion": "qos.noderesource.dev/v1alpha1", "kind": "NodeQOSResources", "metadata": {"name": "n1"},
		"status": {"qosResources": {"containerQOSResources": [{"name": "k8s.io/rdt", "mutable": true, "classes": [{"name": "gold", "capacity": 2}]}]}}}`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	object, ok := got.(*v1alpha1.NodeQOSResources)
	if !ok || object.Name != "n1" || object.Status.QOSResources.ContainerQOSResources[0].Classes[0].Capacity != 2 {
		t.Errorf("got %#v", got)
	}
}

func TestTheManifestOfTheCRDAgreesWithThePackage(t *testing.T) {
	data, err := os.ReadFile("../../../deploy/kubernetes/crd.yaml")
	if err != nil {
		t.Fatal(err)
	}

	var crd struct {
		Metadata struct{ Name string }
		Spec     struct {
			Group, Scope string
			Names        struct {
				Kind, Plural string
				ShortNames   []string
			}
			Versions []struct {
				Name            string
				Served, Storage bool
				Subresources    map[string]any
			}
		}
	}

	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatal(err)
	}

	t.Run("the names are those of the package, with the short name nqr", func(t *testing.T) {
		if crd.Metadata.Name != v1alpha1.Plural+"."+v1alpha1.GroupName || crd.Spec.Group != v1alpha1.GroupName ||
			crd.Spec.Names.Kind != v1alpha1.Kind || crd.Spec.Names.Plural != v1alpha1.Plural || !slices.Contains(crd.Spec.Names.ShortNames, "nqr") {
			t.Errorf("got %+v", crd)
		}
	})
	t.Run("it is cluster-scoped, and has a status subresource", func(t *testing.T) {
		version := crd.Spec.Versions[0]
		if _, has := version.Subresources["status"]; crd.Spec.Scope != "Cluster" || version.Name != v1alpha1.Version || !version.Served || !version.Storage || !has {
			t.Errorf("got %+v", crd.Spec)
		}
	})
}
