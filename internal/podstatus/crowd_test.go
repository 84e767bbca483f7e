// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/qos-nri/qos-nri-plugin/internal/podstatus"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
)

// crowd returns a rig with the given number of pods, and a function that takes the name of a class. The result of the
// function is a list of arguments for plugin.set, which give this class to all of these pods.
func crowd(t *testing.T, size int) (r *rig, in func(class string) []string) {
	var pods []runtime.Object
	for i := range size {
		pods = append(pods, pod(fmt.Sprintf("pod-%d", i)))
	}
	return cluster(t, pods...), func(class string) []string {
		var list []string
		for i := range size {
			list = append(list, fmt.Sprintf("pod-%d=%s", i, class))
		}
		return list
	}
}

func TestAFailingServerGetsFewRequestsHoweverManyPodsWait(t *testing.T) {
	for name, answer := range map[string]error{
		"away":                    apierrors.NewServiceUnavailable("etcd is away"),
		"overloaded":              apierrors.NewTooManyRequests("slowly", 1),
		"rejects the credentials": apierrors.NewUnauthorized("who"),
		"times out":               fmt.Errorf("patch: %w", timeout{}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, in := crowd(t, 40)
				var broken atomic.Bool
				broken.Store(true)
				refuse := func(clienttesting.Action) (bool, runtime.Object, error) { return broken.Load(), nil, answer }
				r.client.PrependReactor("patch", "*", refuse)
				r.client.PrependReactor("create", "*", refuse)
				r.plugin.set(nil, in("gold")...)
				r.start(both())
				defer r.stop()
				r.plugin.set(nil, in("silver")...)
				bubble.Pass(10 * time.Minute)
				if got := len(r.writes()); got < 2 || got > 150 {
					t.Errorf("%d writes in ten minutes, want 2 to 150", got)
				}

				broken.Store(false)
				bubble.Pass(4 * time.Minute)
				for i := range 40 {
					r.wantCondition("when the API server is back", fmt.Sprintf("pod-%d", i), "True Assigned: main: k8s.io/rdt silver (container)")
				}

				if got := len(r.events()); got != 40 {
					t.Errorf("%d events when the API server is back, want the change of each pod", got)
				}
			})
		})
	}
}

// timeout is a net.Error that reports a timeout.
type timeout struct{}

func (timeout) Error() string   { return "i/o timeout" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

// TestPodsThatChangeTogetherAreWrittenOverAMinute: if more than 10 pods change together, they are reconciled at random times within a
// minute. A single pod is reconciled at once. The writes are counted 5 s after each change, and again a minute later.
func TestPodsThatChangeTogetherAreWrittenOverAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, in := crowd(t, 60)
		r.plugin.set(nil, in("gold")...)
		checkSpread := func(when string) {
			if got := len(r.writes()); got > 25 {
				t.Errorf("%s: %d writes within five seconds; want them spread over a minute", when, got)
			}
			bubble.Pass(time.Minute)
			if got := len(r.writes()); got < 35 {
				t.Errorf("%s: %d writes in the rest of the minute; want at least 35 of the 60", when, got)
			}
		}
		r.start(podstatus.Options{Conditions: true}) // waits 5 s
		defer r.stop()
		checkSpread("at first")
		r.plugin.set(nil, in("silver")...)
		bubble.Pass(5 * time.Second)
		checkSpread("after a change of all")

		bubble.Pass(time.Minute)
		r.forgetWrites()
		r.plugin.set(nil, append(in("silver")[1:], "pod-0=gold")...)
		bubble.Pass(time.Second)
		r.wantWrites("a second after one pod changed", applied)
	})
}

func TestConditionsDoNotWaitForEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 250
		r, in := crowd(t, size)
		r.plugin.set(nil, in("gold")...)
		r.start(both())
		defer r.stop()
		bubble.Pass(time.Minute)
		r.plugin.set(nil, in("silver")...)

		// The pods are reconciled at random times within a minute. The rate limit may delay the last conditions by some seconds more. All
		// events together take 83 s.
		bubble.Pass(70 * time.Second)
		old := 0
		for i := range size {
			if !strings.Contains(r.condition(fmt.Sprintf("pod-%d", i)).Message, "silver") {
				old++
			}
		}
		if old > 0 {
			t.Errorf("%d of %d pods have the condition of before the change, %d events are written", old, size, len(r.events()))
		}
		bubble.Pass(time.Minute)
		if got := len(r.events()); got != size {
			t.Errorf("%d events, want %d", got, size)
		}
	})
}
