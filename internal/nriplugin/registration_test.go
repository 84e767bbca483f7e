// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/nriplugin"
)

// TestThePluginWaits15SecondsForABusyRuntime uses a runtime that begins to read a connection after some time.
func TestThePluginWaits15SecondsForABusyRuntime(t *testing.T) {
	for name, test := range map[string]struct {
		busy time.Duration
		log  string
	}{
		"within 15 s": {14 * time.Second, `msg="registered with the container runtime"`},
		"too late":    {time.Hour, "does not answer the registration within 15s, and containers start without classes meanwhile; reduce its load"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				dial := func(context.Context, string) (net.Conn, error) {
					here, there := net.Pipe()
					go func() {
						defer there.Close()
						select {
						case <-time.After(test.busy):
							if err := registerAndConfigure(there, 0); err != nil && ctx.Err() == nil {
								t.Errorf("the simulated runtime: %v", err)
							}
						case <-ctx.Done():
						}
					}()
					return here, nil
				}

				var log strings.Builder
				n := node.New(node.Options{Log: slog.New(slog.DiscardHandler)})
				options := nriplugin.Options{Socket: "x", Index: "10", Dial: dial, Log: slog.New(slog.NewTextHandler(&log, nil))}
				must(t, nriplugin.New(n, options).Run(ctx))
				if !strings.Contains(log.String(), test.log) {
					t.Errorf("the log has no line with %q:\n%s", test.log, log.String())
				}
			})
		})
	}
}
