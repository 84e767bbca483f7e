// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package replicated

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// leaseName is the Lease of these tests.
const leaseName = "qos"

func TestTwoReplicasOnAHostHaveDifferentIdentities(t *testing.T) {
	host := must.Get(os.Hostname())(t)
	first := must.Get(newIdentity())(t)
	second := must.Get(newIdentity())(t)
	if first == second || !strings.HasPrefix(first, host+"_") {
		t.Errorf("the identities are %s and %s", first, second)
	}
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
		left <- lead(ctx, client, "qos", leaseName, func(ctx context.Context, replica string) {
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

// TestAReplicaThatWaitsForTheLeaseCanBeEnded has a Lease that another replica holds for an hour.
func TestAReplicaThatWaitsForTheLeaseCanBeEnded(t *testing.T) {
	client := fake.NewClientset(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "qos", Name: leaseName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("other"), LeaseDurationSeconds: new(int32(3600)), RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	})

	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		left <- lead(ctx, client, "qos", leaseName, func(context.Context, string) { t.Error("two replicas lead") })
	}()

	until(t, "the replica asks for the lease", func() bool { return len(client.Actions()) > 0 })

	cancel()
	if err := <-left; err != nil {
		t.Error(err)
	}
}
