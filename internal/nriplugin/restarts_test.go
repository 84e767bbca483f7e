// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/nriplugin"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// use counts the resources of a process: goroutines, file descriptors, and heap in bytes.
type use struct{ goroutines, descriptors, heap int }

// usage returns the resources that this process uses after a garbage collection.
func usage(t *testing.T) use {
	t.Helper()
	var stats runtime.MemStats
	for range 3 { // the next garbage collection frees the memory that finalizers release
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	files, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return use{runtime.NumGoroutine(), len(files), int(stats.HeapAlloc)}
}

// wantNoGrowth fails the test if the used resources grow with each repetition. It accepts resources that the test and
// its runtime allocate only once.
func wantNoGrowth(t *testing.T, before, after use, times int) {
	t.Helper()
	if grown := after.goroutines - before.goroutines; grown > times/10 {
		t.Errorf("%d more goroutines after %d repetitions", grown, times)
	}
	if grown := after.descriptors - before.descriptors; grown > times/10 {
		t.Errorf("%d more file descriptors after %d repetitions", grown, times)
	}
	if grown := after.heap - before.heap; grown > times<<10 {
		t.Errorf("%d more bytes of heap after %d repetitions", grown, times)
	}
}

// TestReconnectionsLeakNothing uses synctest, because the plugin waits between attempts. synctest fails the test if a
// goroutine is left at the end. The name of a case says when the runtime drops the plugin.
func TestReconnectionsLeakNothing(t *testing.T) {
	const warm, times = 20, 100
	for _, test := range []struct {
		name    string
		runtime func(*testing.T) net.Conn
	}{
		{"after the plugin was configured", func(t *testing.T) net.Conn { return briefRuntime(t, 0) }},
		{"after the plugin was synchronized", func(t *testing.T) net.Conn { return briefRuntime(t, time.Minute) }},
		{"between the registration and Configure", unfinishedRuntime},
		{"never, but it does not answer the registration", silentRuntime},
		{"before the registration", droppingRuntime},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var before, after use
				attempts := 0
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				dial := func(context.Context, string) (net.Conn, error) {
					synctest.Wait()
					switch attempts++; attempts {
					case warm:
						before = usage(t)
					case warm + times:
						after = usage(t)
						cancel()
						return nil, errors.New("the test is over")
					}
					return test.runtime(t), nil
				}

				n := node.New(node.Options{Log: slog.New(slog.DiscardHandler)})
				must(t, nriplugin.New(n, nriplugin.Options{Socket: "x", Index: "10", Dial: dial, Log: slog.New(slog.DiscardHandler)}).Run(ctx))

				wantNoGrowth(t, before, after, times)
			})
		})
	}
}

// unfinishedRuntime returns the plugin's end of a connection to a runtime that dies after it has registered the plugin.
func unfinishedRuntime(t *testing.T) net.Conn {
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		if err := nriruntime.AnswerRegistration(there, nil); err != nil {
			t.Errorf("the simulated runtime: %v", err)
		}
	}()
	return here
}

// silentRuntime returns the plugin's end of a connection to a runtime that never answers.
func silentRuntime(*testing.T) net.Conn {
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		for buffer := make([]byte, 1024); ; {
			if _, err := there.Read(buffer); err != nil {
				return
			}
		}
	}()
	return here
}

// droppingRuntime returns a connection that the runtime has closed.
func droppingRuntime(*testing.T) net.Conn {
	here, there := net.Pipe()
	_ = there.Close()
	return here
}

// TestAHundredRestartsOfTheRuntimeLeakNothing uses sockets, and containers that keep running.
func TestAHundredRestartsOfTheRuntimeLeakNothing(t *testing.T) {
	const warm, times = 10, 100
	r := newRig(t)
	id := r.mustRun(t, r.pod(t, "a", "test.example/cache=solo"))
	var before use
	for i := range warm + times {
		if i == warm {
			before = usage(t)
		}
		r.restartRuntime(t)
	}

	wantNoGrowth(t, before, usage(t), times)
	if got := r.backend.Enforced()[id]; got != "solo" || r.inUse("solo") != 1 {
		t.Errorf("the container is in class %q, with %d slots in use", got, r.inUse("solo"))
	}
}
