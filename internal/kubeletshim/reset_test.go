// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletshim

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

func TestANodeIsResetWhenNothingHasAClassThatItDidNotRequest(t *testing.T) {
	now := time.Now()
	class := func(draining bool, holders ...string) nodeqosv1alpha1.QOSResourceClassInfo {
		c := nodeqosv1alpha1.QOSResourceClassInfo{Name: "gold", Draining: draining}
		for _, source := range holders {
			c.Holders = append(c.Holders, nodeqosv1alpha1.Holder{Source: source})
		}
		return c
	}

	for _, test := range []struct {
		name    string
		class   nodeqosv1alpha1.QOSResourceClassInfo
		age     time.Duration // of the report
		offered bool
	}{
		{"a class that is offered", class(false), 0, true},
		{"a removed class that a container requested", class(true, "container"), 0, false},
		{"a removed class that a container still has as its default", class(true, "allocated", "default"), 0, true},
		{"a class of a node that has stopped reporting", class(false), nodeqosv1alpha1.HeartbeatTimeout + time.Second, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			resource := []nodeqosv1alpha1.QOSResourceInfo{{Name: "k8s.io/rdt", Classes: []nodeqosv1alpha1.QOSResourceClassInfo{test.class}}}
			for scope, resources := range map[string]nodeqosv1alpha1.QOSResourceStatus{
				"container": {ContainerQOSResources: resource}, "pod": {PodQOSResources: resource},
			} {
				status := &nodeqosv1alpha1.NodeQOSResourcesStatus{QOSResources: resources, LastHeartbeatTime: &metav1.Time{Time: now.Add(-test.age)}}
				if got := offersClasses(status, now); got != test.offered {
					t.Errorf("the node offers classes of scope %s: %t", scope, got)
				}
			}
		})
	}
}

func TestAwaitResetReturnsWhenTheLastNodeIsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := nodeqosv1alpha1.GroupVersion.WithResource(nodeqosv1alpha1.Plural)
		objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{nodes: "NodeQOSResourcesList"})
		for name, classes := range map[string][]any{"n1": {}, "n2": {map[string]any{"name": "gold", "inUse": int64(0)}}} {
			node := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}, "status": map[string]any{
				"qosResources": map[string]any{"containerQOSResources": []any{map[string]any{"name": "k8s.io/rdt", "mutable": true, "classes": classes}}},
			}}}
			node.SetGroupVersionKind(nodeqosv1alpha1.GroupVersion.WithKind("NodeQOSResources"))
			if _, err := objects.Resource(nodes).Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}

		ended := make(chan error, 1)
		go func() { ended <- awaitReset(t.Context(), objects, slog.New(slog.DiscardHandler)) }()

		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("awaitReset returned while a node offers a class: %v", err)
		default:
		}

		if err := objects.Resource(nodes).Delete(context.WithoutCancel(t.Context()), "n2", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}

		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
