// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// TestAReplicaIsReadyWhenItHasAllObjects lets the API refuse lists of one kind at first. The replica does not lead.
func TestAReplicaIsReadyWhenItHasAllObjects(t *testing.T) {
	var allowed, refused atomic.Bool
	client := fake.NewClientset()
	client.PrependReactor("list", "volumeattributesclasses", func(clienttesting.Action) (bool, runtime.Object, error) {
		if allowed.Load() {
			return false, nil, nil
		}
		refused.Store(true)
		return true, nil, errors.New("forbidden")
	})

	kinds := map[schema.GroupVersionResource]string{nodeqosv1alpha1.GroupVersion.WithResource(nodeqosv1alpha1.Plural): nodeqosv1alpha1.Kind + "List"}
	nodes := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	c := must.Get(newController(client, nodes, events.NewFakeRecorder(1), nil, slog.New(slog.DiscardHandler)))(t)
	ctx, cancel := context.WithCancel(t.Context())
	group := &errgroup.Group{}
	c.Start(ctx, group)
	defer func() {
		cancel()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	}()

	until(t, "the API server has refused a list", refused.Load)
	if err := c.Ready(); err == nil {
		t.Error("the controller is ready, although it cannot list VolumeAttributesClasses")
	}

	allowed.Store(true)
	until(t, "the replica is ready", func() bool { return c.Ready() == nil })
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	condition := func(context.Context) (bool, error) { return is(), nil }
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
