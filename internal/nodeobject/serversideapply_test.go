// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject_test

import (
	"maps"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// fieldManager applies objects as the API server does, with the schema of the CRD.
type fieldManager struct {
	managedfieldstest.TestFieldManager
}

func newFieldManager(t *testing.T) *fieldManager {
	t.Helper()
	data := must.Get(os.ReadFile("../../deploy/kubernetes/crd.yaml"))(t)
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema *spec.Schema }
			}
		}
	}
	must.Do(t, yaml.Unmarshal(data, &crd))

	schema, kind := crd.Spec.Versions[0].Schema.OpenAPIV3Schema, nodeqosv1alpha1.GroupVersion.WithKind(nodeqosv1alpha1.Kind)
	schema.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{"group": kind.Group, "version": kind.Version, "kind": kind.Kind}})
	converter := must.Get(managedfields.NewTypeConverter(map[string]*spec.Schema{kind.Kind: schema}, false))(t)
	return &fieldManager{managedfieldstest.NewTestFieldManager(converter, kind)}
}

// refuse applies the status of an object. It returns the reason why the API server would refuse the result, or "".
func (f *fieldManager) refuse(applied object) string {
	status := &unstructured.Unstructured{Object: clone(applied)}
	if err := f.Apply(status, nodeqosv1alpha1.FieldManager, true); err != nil {
		return err.Error()
	}

	live, ok := f.Live().(*unstructured.Unstructured)
	if !ok {
		return ""
	}
	content, _ := live.Object["status"].(map[string]any)
	for name := range maps.Keys(content) {
		if content[name] == nil {
			return `status.` + name + `: Invalid value: "null": status.` + name + ` in body must be of type object: "null"`
		}
	}
	return ""
}

// TestAnEmptyStateIsPublished removes all classes of a node, as an uninstall does.
func TestAnEmptyStateIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := settled(t)
		state := ready(0)
		state.Status.Resources.ContainerQosResources = nil
		r.plugin.Set(state)
		bubble.Pass(lull)
		r.expectRequests(t, getNode, applyStatus)
		if got := r.published(t).Status.QOSResources.ContainerQOSResources; len(got) > 0 {
			t.Errorf("the object still has %+v", got)
		}

		r.plugin.Set(ready(1))
		bubble.Pass(time.Minute)
		r.expectInUse(t, 1)
	})
}
