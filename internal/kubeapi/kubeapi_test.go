// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/qos-nri/qos-nri-plugin/test/bubble"
)

// TestRetryDelays compares the delays after the same error again and again. A delay is the Retry-After of the error, plus `random` times a
// step: 1 s, then twice as much after each error, up to a minute.
func TestRetryDelays(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	for name, test := range map[string]struct {
		err    error
		random float64 // from 0 to 1
		want   []time.Duration
	}{
		"steps double up to a minute": {err: errors.New("x"), random: 1, want: []time.Duration{
			time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute}},
		"a delay is a random part of its step":                      {err: errors.New("x"), random: 0, want: []time.Duration{0, 0, 0}},
		"an error that a person has to repair waits long at once":   {err: refused, random: 0.5, want: []time.Duration{30 * time.Second, 30 * time.Second}},
		"a problem that a caller has described waits long, too":     {err: &Problem{Line: "x"}, random: 1, want: []time.Duration{time.Minute}},
		"a server is not asked before its Retry-After, but later":   {err: retryAfter(429, 10, "busy"), random: 0.5, want: []time.Duration{10500 * time.Millisecond, 11 * time.Second}},
		"an unavailable server is not asked before its Retry-After": {err: retryAfter(503, 3, "busy"), random: 0, want: []time.Duration{3 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			for i, want := range test.want {
				if got := delay(test.err, i, test.random); got != want {
					t.Errorf("wait %d: %v, want %v", i, got, want)
				}
			}
		})
	}

	t.Run("after success it begins again", func(t *testing.T) {
		var retry Retry
		for range 10 {
			retry.Failed(errors.New("x"))
		}
		retry.Reset()
		if got := retry.Wait(); got != 0 {
			t.Errorf("got %v", got)
		}
		if retry.Failed(errors.New("x")); retry.Wait() > time.Second {
			t.Errorf("got %v", retry.Wait())
		}
	})
}

// TestOutcomeLog compares the lines that a series of results logs; nil is a success.
func TestOutcomeLog(t *testing.T) {
	unavailable := apierrors.NewServiceUnavailable("etcd is away")
	for name, test := range map[string]struct {
		errs []error
		want []string // a part of each line
	}{
		"success from the beginning is no line": {errs: []error{nil, nil}},
		"one failure and its end are two lines": {errs: []error{unavailable, unavailable, nil, nil}, want: []string{"etcd is away", "works again"}},
		"another failure is another line, the same is not": {
			errs: []error{unavailable, unavailable, retryAfter(429, 1, "busy"), errors.New("a"), errors.New("a"), errors.New("b"), nil},
			want: []string{"etcd is away", "API server is overloaded", "problem=a", "problem=b", "works again"}},
	} {
		t.Run(name, func(t *testing.T) {
			var log bubble.Log
			outcomes := OutcomeLog{What: "write it", Log: slog.New(slog.NewTextHandler(&log, nil))}
			for _, err := range test.errs {
				outcomes.Record(err)
			}

			log.Expect(t, test.want...)
		})
	}
}

func TestWritesAreCountedByOutcome(t *testing.T) {
	registry := prometheus.NewRegistry()
	writes := NewWrites(registry)
	if err := writes.Count("pods/status", retryAfter(429, 1, "busy")); OutcomeOf(err) != TooMany {
		t.Errorf("Count returned %v, want the error of the write", err)
	}

	_ = writes.Count("pods/status", nil)
	want := `
# HELP qos_shim_api_writes_total Write requests to the Kubernetes API, by kind of object and outcome.
# TYPE qos_shim_api_writes_total counter
qos_shim_api_writes_total{object="pods/status",outcome="ok"} 1
qos_shim_api_writes_total{object="pods/status",outcome="too_many"} 1
`

	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
