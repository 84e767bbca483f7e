// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package replicated

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// These are the times of the leader election. The Kubernetes controllers use the same times.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// ErrLost is returned by a replica that is no longer the leader. The process of the replica then exits, and a
// restarted process waits to be the leader.
var ErrLost = errors.New("another replica may be the leader now")

// newIdentity returns the name of this process in the leader election. Two processes never have the same name, not even on one host.
func newIdentity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the name of this replica: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}

// lead calls `run` while this process holds the Lease. The parameter `replica` of `run` is the name of this process.
// When ctx ends, the Lease is released only after `run` has returned. So the next leader writes nothing while this
// process still writes.
func lead(
	ctx context.Context, client kubernetes.Interface, namespace, lease string, run func(ctx context.Context, replica string),
) error {
	identity, err := newIdentity()
	if err != nil {
		return err
	}
	candidacy, resign := context.WithCancel(context.WithoutCancel(ctx))
	defer resign()
	var running sync.Mutex // locked while run is called
	stop := context.AfterFunc(ctx, func() {
		running.Lock()
		defer running.Unlock()
		resign()
	})
	defer stop()

	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: lease}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				running.Lock()
				defer running.Unlock()
				leading, end := context.WithCancel(leading)
				defer end()
				defer context.AfterFunc(ctx, end)()
				run(leading, identity)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("elect a leader: %w", err)
	}

	elector.Run(candidacy)
	running.Lock() // waits until run has returned
	defer running.Unlock()
	if ctx.Err() == nil {
		return ErrLost
	}
	return nil
}
