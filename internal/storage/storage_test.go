// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

func TestTwoReplicasOnAHostHaveTheirOwnIdentities(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}

	first, err := newIdentity()
	if err != nil {
		t.Fatal(err)
	}

	second, err := newIdentity()
	if err != nil {
		t.Fatal(err)
	}

	if first == second || !strings.HasPrefix(first, host+"_") {
		t.Errorf("the identities are %s and %s", first, second)
	}
}

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
	c, err := newController(client, nodes, events.NewFakeRecorder(1), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	group := &errgroup.Group{}
	c.start(ctx, group)
	defer func() {
		cancel()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	}()

	until(t, "the API server has refused a list", refused.Load)
	if err := c.ready(); err == nil {
		t.Error("the controller is ready, although it cannot list VolumeAttributesClasses")
	}

	allowed.Store(true)
	until(t, "it is ready", func() bool { return c.ready() == nil })
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	condition := func(context.Context) (bool, error) { return is(), nil }
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// TestTheLeaseIsReleasedAfterTheLastWrite ends a leader while a write hangs.
func TestTheLeaseIsReleasedAfterTheLastWrite(t *testing.T) {
	client := fake.NewClientset()
	holder := func() string {
		lease, err := client.CoordinationV1().Leases("qos").Get(context.Background(), leaseName, metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}

	ctx, cancel := context.WithCancel(t.Context())
	writing, ended, answered := make(chan string), make(chan struct{}), make(chan struct{})
	left := make(chan error, 1)
	go func() {
		left <- lead(ctx, client, "qos", func(ctx context.Context, replica string) {
			writing <- replica
			<-ctx.Done()
			close(ended)
			<-answered
		})
	}()

	replica := <-writing

	cancel()
	<-ended
	select {
	case err := <-left:
		t.Fatalf("lead returned before the write: %v", err)
	default:
	}

	if got := holder(); got != replica {
		t.Errorf("while the write hangs, %q has the lease, want %q", got, replica)
	}

	close(answered)
	if err := <-left; err != nil {
		t.Error(err)
	}

	if got := holder(); got != "" {
		t.Errorf("at the end, %q has the lease", got)
	}
}

func TestAReplicaThatIsNotTheLeaderEnds(t *testing.T) {
	client := fake.NewClientset(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "qos", Name: leaseName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("other"), LeaseDurationSeconds: new(int32(3600)), RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	})

	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		left <- lead(ctx, client, "qos", func(context.Context, string) { t.Error("two replicas lead") })
	}()

	until(t, "it asks for the lease", func() bool { return len(client.Actions()) > 0 })

	cancel()
	if err := <-left; err != nil {
		t.Error(err)
	}
}
