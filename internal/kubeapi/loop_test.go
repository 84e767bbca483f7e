// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestBackoff(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	for name, test := range map[string]struct {
		err    error
		random float64
		want   []time.Duration
	}{
		"steps double up to a minute": {err: errors.New("x"), random: 1, want: []time.Duration{
			time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute}},
		"the whole of a step is drawn from":               {err: errors.New("x"), random: 0, want: []time.Duration{0, 0, 0}},
		"what a person has to mend waits long at once":    {err: refused, random: 0.5, want: []time.Duration{30 * time.Second, 30 * time.Second}},
		"so does what a caller knows a person has to":     {err: &Problem{Line: "x"}, random: 1, want: []time.Duration{time.Minute}},
		"a server is not asked before it said, but later": {err: comeBackLater(429, 10, "busy"), random: 0.5, want: []time.Duration{10500 * time.Millisecond, 11 * time.Second}},
		"nor one that is unavailable for a while":         {err: comeBackLater(503, 3, "busy"), random: 0, want: []time.Duration{3 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			var backoff Backoff
			for i, want := range test.want {
				if got := backoff.Next(test.err, test.random); got != want {
					t.Errorf("wait %d: %v, want %v", i, got, want)
				}
			}
		})
	}
	t.Run("after success it begins again", func(t *testing.T) {
		var backoff Backoff
		backoff.Next(errors.New("x"), 1)
		backoff.Reset()
		if got := backoff.Next(errors.New("x"), 1); got != time.Second {
			t.Errorf("got %v", got)
		}
	})
}

// run is a loop in a bubble of synctest, with what it did.
type run struct {
	*Loop
	began time.Time
	at    []time.Duration // when the work began to run, after began
	errs  []error         // what it returns, in turn; nil after the last
	log   strings.Builder
}

// loop runs one until the test ends.
func loop(t *testing.T, errs ...error) *run {
	t.Helper()
	r := &run{began: time.Now(), errs: errs}
	r.Loop = NewLoop(LoopOptions{
		What: "write it", Gather: time.Second, Interval: 5 * time.Second, Log: slog.New(slog.NewTextHandler(&r.log, nil)),
		Work: func(context.Context) error {
			r.at = append(r.at, time.Since(r.began))
			if len(r.errs) == 0 {
				return nil
			}
			err := r.errs[0]
			r.errs = r.errs[1:]
			return err
		},
	})
	r.random = func() float64 { return 1 }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// pass lets time go by in the bubble, until everything waits again.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // it takes no time
	synctest.Wait()
}

func (r *run) expect(t *testing.T, want ...time.Duration) {
	t.Helper()
	pass(time.Hour)
	if !slices.Equal(r.at, want) {
		t.Errorf("ran at %v, want %v", r.at, want)
	}
}

func (r *run) expectLog(t *testing.T, lines ...string) {
	t.Helper()
	got := strings.Split(strings.TrimSpace(r.log.String()), "\n")
	if len(got) != len(lines) {
		t.Fatalf("logged %q, want %d lines", got, len(lines))
	}
	for i, line := range lines {
		if !strings.Contains(got[i], line) {
			t.Errorf("logged %s, want %s", got[i], line)
		}
	}
}

func TestLoop(t *testing.T) {
	unavailable := apierrors.NewServiceUnavailable("etcd is away")
	for name, test := range map[string]func(*testing.T){
		"without a trigger it does nothing": func(t *testing.T) { loop(t).expect(t) },
		"triggers that come together are one run": func(t *testing.T) {
			l := loop(t)
			for range 100 {
				l.Trigger()
			}
			l.expect(t, time.Second)
		},
		"what comes after a run waits for the interval": func(t *testing.T) {
			l := loop(t)
			for range 13 {
				l.Trigger()
				pass(900 * time.Millisecond)
			}
			l.expect(t, time.Second, 6*time.Second, 11*time.Second)
		},
		"a failure is tried again without a trigger, ever later": func(t *testing.T) {
			l := loop(t, unavailable, unavailable, unavailable)
			l.Trigger()
			l.expect(t, time.Second, 2*time.Second, 4*time.Second, 8*time.Second)
			l.expectLog(t, "failed, trying again", "works again")
		},
		"a trigger does not shorten the wait after a failure": func(t *testing.T) {
			l := loop(t, comeBackLater(429, 100, "busy"))
			l.Trigger()
			pass(10 * time.Second)
			l.Trigger()
			l.expect(t, time.Second, 102*time.Second)
		},
		"another failure is another line, the same one is not": func(t *testing.T) {
			l := loop(t, unavailable, unavailable, comeBackLater(429, 1, "busy"), errors.New("a"), errors.New("a"), errors.New("b"))
			l.Trigger()
			pass(time.Hour)
			l.expectLog(t, "etcd is away", "no time for it now", "problem=a", "problem=b", "works again")
		},
		"work that cannot try yet neither fails nor mends": func(t *testing.T) {
			l := loop(t, unavailable, ErrNotNow)
			l.Trigger()
			l.expect(t, time.Second, 2*time.Second)
			l.expectLog(t, "etcd is away")
			l.Trigger()
			pass(time.Hour)
			l.expectLog(t, "etcd is away", "works again")
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

func TestLoopEndsWorkThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var took time.Duration
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := NewLoop(LoopOptions{Log: slog.New(slog.DiscardHandler), Work: func(ctx context.Context) error {
			<-ctx.Done()
			took = time.Since(began)
			cancel()
			return ctx.Err()
		}})
		l.Trigger()
		if err := l.Run(ctx); err != nil || took != runTimeout {
			t.Errorf("ended after %v: %v", took, err)
		}
	})
}

func TestWrites(t *testing.T) {
	registry := prometheus.NewRegistry()
	_ = NewWrites(registry).Count("pods/status", nil)
	again := NewWrites(registry)
	if err := again.Count("pods/status", comeBackLater(429, 1, "busy")); OutcomeOf(err) != TooMany {
		t.Errorf("the error is gone: %v", err)
	}
	_ = again.Count("pods/status", nil)
	want := `
# HELP qos_shim_api_writes_total Requests to the Kubernetes API that write, by kind of object and by what came of them.
# TYPE qos_shim_api_writes_total counter
qos_shim_api_writes_total{object="pods/status",outcome="ok"} 2
qos_shim_api_writes_total{object="pods/status",outcome="too_many"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
