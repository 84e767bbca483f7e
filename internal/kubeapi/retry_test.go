// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// TestBreaker checks which errors of a request open the breaker. An open breaker makes no request until its wait is over.
func TestBreaker(t *testing.T) {
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("policy says no"))
	for _, c := range []struct {
		name  string
		err   error
		opens bool
	}{
		{"stays closed after a success", nil, false},
		{"stays closed when one object is rejected", denied, false},
		{"opens when the server is away", apierrors.NewServiceUnavailable("etcd is away"), true},
		{"opens when the server is overloaded", apierrors.NewTooManyRequests("slowly", 5), true},
		{"opens when the credentials are rejected", apierrors.NewUnauthorized("who"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				breaker, requests := kubeapi.NewBreaker(10, 10), 0
				do := func(err error) error {
					return breaker.Do(t.Context(), func() error { requests++; return err })
				}

				if err := do(c.err); !errors.Is(err, c.err) {
					t.Errorf("got %v; want the request's error %v", err, c.err)
				}

				if open := breaker.Wait() > 0; open != c.opens {
					t.Fatalf("open: %v, want %v", open, c.opens)
				}

				if !c.opens {
					return
				}

				if err := do(nil); !errors.Is(err, kubeapi.ErrBreakerOpen) || requests != 1 {
					t.Errorf("while open: %v after %d requests; want ErrBreakerOpen and no request", err, requests)
				}

				<-time.After(breaker.Wait())
				if err := do(nil); err != nil || breaker.Wait() > 0 {
					t.Errorf("after the wait: %v, open for %s; want it closed by a success", err, breaker.Wait())
				}
			})
		})
	}
}
