// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletshim

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

func TestANodeIsResetWhenItOffersNoClassAndNothingHasADefaultClass(t *testing.T) {
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
				if got := offered(status, now); (got != "") != test.offered {
					t.Errorf("in scope %s, the node offers %q; want an offer: %t", scope, got, test.offered)
				}
			}
		})
	}
}

// nodesWith returns a client for nodes with the given NodeQOSResources.status.
func nodesWith(t *testing.T, nodes map[string]map[string]any) *dynamicfake.FakeDynamicClient {
	t.Helper()
	objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{nodeObjects: "NodeQOSResourcesList"})
	for name, status := range nodes {
		node := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}, "status": status}}
		node.SetGroupVersionKind(nodeqosv1alpha1.GroupVersion.WithKind("NodeQOSResources"))
		if _, err := objects.Resource(nodeObjects).Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return objects
}

var nodeObjects = nodeqosv1alpha1.GroupVersion.WithResource(nodeqosv1alpha1.Plural)

// offering returns the status of a node that offers the given classes.
func offering(classes ...any) map[string]any {
	return map[string]any{"qosResources": map[string]any{
		"containerQOSResources": []any{map[string]any{"name": "k8s.io/rdt", "mutable": true, "classes": classes}},
	}}
}

func TestAwaitResetReturnsWhenTheLastNodeIsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := nodesWith(t, map[string]map[string]any{"n1": offering(), "n2": offering(map[string]any{"name": "gold", "inUse": int64(0)})})
		ended := make(chan error, 1)
		go func() { ended <- awaitReset(t.Context(), objects, ResetTimeout, slog.New(slog.DiscardHandler)) }()

		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("awaitReset returned while a node offers a class: %v", err)
		default:
		}

		// A node without an object counts as reset.
		must.Do(t, objects.Resource(nodeObjects).Delete(context.WithoutCancel(t.Context()), "n2", metav1.DeleteOptions{}))

		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestAwaitResetWaitsUntilGroupsAreRemoved: all nodes must stay reset for 30 s, in which the plugins remove empty resctrl groups. This
// time begins again after 20 s, when the API server does not answer for a moment.
func TestAwaitResetWaitsUntilGroupsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := nodesWith(t, nil)
		began := time.Now()
		objects.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			if since := time.Since(began); since < 20*time.Second || since > 21*time.Second {
				return false, nil, nil
			}
			return true, nil, apierrors.NewTimeoutError("slow", 1)
		})
		err := awaitReset(t.Context(), objects, ResetTimeout, slog.New(slog.DiscardHandler))
		if took := time.Since(began); err != nil || took < 50*time.Second || took > time.Minute {
			t.Errorf("awaitReset returned after %v with the error %v, want 50 s to 1 min and no error", took, err)
		}
	})
}

func TestAwaitResetEndsWithTheNamesOfTheNodesAndTheReasons(t *testing.T) {
	gold, held := map[string]any{"name": "gold", "inUse": int64(0)}, map[string]any{"name": "bronze", "inUse": int64(1), "draining": true}
	held["holders"] = []any{map[string]any{"namespace": "a", "pod": "web", "source": "default"}}
	silent := offering(gold)
	silent["conditions"] = []any{map[string]any{
		"type": "PluginReady", "status": "False", "reason": "NotAnswering", "message": "it does not answer", "lastTransitionTime": "2026-01-01T00:00:00Z",
	}}
	synctest.Test(t, func(t *testing.T) {
		objects := nodesWith(t, map[string]map[string]any{"n1": offering(), "n2": silent, "n3": offering(held)})
		began := time.Now()
		err := awaitReset(t.Context(), objects, ResetTimeout, slog.New(slog.DiscardHandler))
		const want = "nodes still offer classes after 4m0s: node n2 offers class gold of k8s.io/rdt (NotAnswering: it does not answer); " +
			"node n3 has pod a/web with the removed default class bronze of k8s.io/rdt"

		// Helm gives up after 5 minutes by default, and the error must come before.
		if err == nil || err.Error() != want || time.Since(began) > 5*time.Minute {
			t.Errorf("after %v: %v; want, within 5 minutes: %s", time.Since(began), err, want)
		}
	})
}

func TestAwaitResetEndsWithoutRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects, lists := nodesWith(t, nil), 0
		objects.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			if lists++; lists == 1 { // a list that times out once is no reason to end
				return true, nil, apierrors.NewTimeoutError("slow", 1)
			}
			return true, nil, apierrors.NewForbidden(nodeObjects.GroupResource(), "", errors.New("no rights"))
		})
		began := time.Now()
		err := awaitReset(t.Context(), objects, time.Hour, slog.New(slog.DiscardHandler))
		if !apierrors.IsForbidden(err) || time.Since(began) > time.Minute {
			t.Errorf("after %v: %v; want the refusal within a minute", time.Since(began), err)
		}
	})
}
