// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/ttrpc"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/nriplugin"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// TestAttemptsToRegisterBackOffUntilASuccess lets 12 attempts fail, the next one succeed, and the last ones fail. A wait is a
// random time between half of its step and the whole step.
func TestAttemptsToRegisterBackOffUntilASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const failures, all = 12, 16
		var attempts []time.Time
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		dial := func(context.Context, string) (net.Conn, error) {
			attempts = append(attempts, time.Now())
			switch len(attempts) {
			case all:
				cancel()
			case failures + 1:
				return briefRuntime(t, time.Minute), nil
			}
			return nil, errors.New("connection refused")
		}

		n := node.New(node.Options{Log: slog.New(slog.DiscardHandler)})
		must(t, nriplugin.New(n, nriplugin.Options{Socket: "x", Index: "10", Dial: dial, Log: slog.New(slog.DiscardHandler)}).Run(ctx))

		const ms = time.Millisecond
		steps := []time.Duration{
			100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 10000 * ms, 10000 * ms, 10000 * ms, 10000 * ms, 10000 * ms,
			100 * ms, 200 * ms, 400 * ms, // after the success
		}

		shares := map[int]bool{}
		for i, step := range steps {
			wait := attempts[i+1].Sub(attempts[i])
			if wait < step/2 || wait >= step {
				t.Errorf("after attempt %d the wait was %s, want at least %s and less than %s", i+1, wait, step/2, step)
			}
			shares[int(100*wait/step)] = true
		}

		if len(shares) < 3 {
			t.Error("the waits have no jitter: nodes whose runtimes restart together would reconnect together")
		}
	})
}

// TestARuntimeThatDropsThePluginIsRetriedWithBackoff simulates a runtime that does not wait for the end of a
// synchronization, or does not begin one. With backoff, at most 20 registrations fit into the minute of the test. The log
// says what the runtime did.
func TestARuntimeThatDropsThePluginIsRetriedWithBackoff(t *testing.T) {
	for name, synchronize := range map[string]time.Duration{"before it synchronizes": 0, "in a synchronization": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				attempts := 0
				dial := func(context.Context, string) (net.Conn, error) {
					attempts++
					return briefRuntime(t, synchronize), nil
				}

				n := node.New(node.Options{Log: slog.New(slog.DiscardHandler)})
				var log strings.Builder
				slow := slog.New(slowLog{slog.NewTextHandler(&log, nil)})
				options := nriplugin.Options{Socket: "x", Index: "10", Dial: dial, Log: slow}
				must(t, nriplugin.New(n, options).Run(ctx))

				<-time.After(time.Minute) // the last hook ends within this time
				synctest.Wait()
				if attempts > 20 {
					t.Errorf("the plugin registered %d times in a minute, want at most 20", attempts)
				}

				if !strings.Contains(log.String(), "disconnected the plugin before it was synchronized") {
					t.Errorf("the log does not say that the runtime disconnected the plugin:\n%s", log.String())
				}
			})
		})
	}
}

// slowLog delays one line that is logged during a synchronization. The delay is longer than the runtime's timeout.
type slowLog struct{ slog.Handler }

func (l slowLog) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "without its pod") {
		<-time.After(3 * time.Second)
	}
	return l.Handler.Handle(ctx, r)
}

// briefRuntime returns the plugin's end of a connection to a runtime that registers and configures the plugin, and then
// disconnects. The parameter `synchronization` is the timeout with which the runtime synchronizes the plugin before it
// disconnects. If the parameter is 0, the runtime does not synchronize the plugin.
func briefRuntime(t *testing.T, synchronization time.Duration) net.Conn {
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		if err := registerAndConfigure(there, synchronization); err != nil {
			t.Errorf("the simulated runtime: %v", err)
		}
	}()
	return here
}

func registerAndConfigure(conn net.Conn, synchronization time.Duration) error {
	return nriruntime.AnswerRegistration(conn, func(plugin api.PluginService) error {
		_, err := plugin.Configure(context.Background(), &api.ConfigureRequest{RuntimeName: "brief", RuntimeVersion: "v1"})
		synctest.Wait() // the plugin now serves
		if synchronization == 0 || err != nil {
			return err
		}

		ctx, cancel := context.WithTimeout(context.Background(), synchronization)
		defer cancel()
		// the plugin logs that this container has no pod, and slowLog can delay this line
		_, err = plugin.Synchronize(ctx, &api.SynchronizeRequest{Containers: []*api.Container{{Id: "odd"}}})
		synctest.Wait()
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ttrpc.ErrClosed) {
			return nil // the plugin was too slow, or the test has ended
		}
		return err
	})
}
