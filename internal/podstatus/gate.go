// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// gate is what all requests that write pass. While the API server cannot take any, or does not know who asks, it is shut for the
// whole node: pods that wait each by themselves would ask together as often as the limit allows, however many they are.
type gate struct {
	limit flowcontrol.RateLimiter

	mu      sync.Mutex // guards all below
	backoff kubeapi.Backoff
	until   time.Time
}

func newGate() *gate {
	return &gate{limit: flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, writeBurst)}
}

// shut says for how long nothing may be written; 0 is not at all.
func (g *gate) shut() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(time.Until(g.until), 0)
}

// pass waits until a request may be made. It gives kubeapi.ErrNotNow when none may before shut is over.
func (g *gate) pass(ctx context.Context) error {
	if err := g.limit.Wait(ctx); err != nil {
		return err
	}
	if g.shut() > 0 {
		return kubeapi.ErrNotNow
	}
	return nil
}

// took takes what came of a request, and gives it. What comes while it is shut was asked before.
func (g *gate) took(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case time.Now().Before(g.until):
	case ofServer(err):
		g.until = time.Now().Add(g.backoff.Next(err, rand.Float64()))
	default:
		g.backoff.Reset()
	}
	return err
}

// ofServer says whether an answer is no matter of what was asked: any other request would have the same.
func ofServer(err error) bool {
	switch kubeapi.OutcomeOf(err) {
	case kubeapi.Unavailable, kubeapi.TooMany, kubeapi.Unauthorized:
		return true
	}
	return false
}
