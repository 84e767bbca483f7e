// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodecache_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/test/must"
	"github.com/qos-nri/qos-nri-plugin/test/nobody"
)

// logLines is a log that sends each line to the channel.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// listen makes a socket that does not accept connections.
func listen(t *testing.T, socket string) *net.UnixListener {
	t.Helper()
	listener := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"}))(t)
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

func TestAnUnusableSocketIsLoggedOnceWithTheRemedy(t *testing.T) {
	for _, test := range []struct {
		name, kernel, remedy string
		prepare              func(t *testing.T, socket string)
	}{
		{"the socket is missing", "no such file or directory", "check that it runs with the same --api-socket", func(*testing.T, string) {}},
		{"the socket was left by a plugin that ended", "connection refused", "check that it runs with the same --api-socket", func(t *testing.T, socket string) {
			listener := listen(t, socket)
			listener.SetUnlinkOnClose(false)
			_ = listener.Close()
		}},
		{"the path is a regular file", "connection refused", "check that it runs with the same --api-socket", func(t *testing.T, socket string) {
			must.Do(t, os.WriteFile(socket, nil, 0o600))
		}},
		{"the shim has no permission", "permission denied", "run qos-kubelet-shim as root, or in the group of qos-nri-plugin's --api-socket-group or --api-read-socket-group", func(t *testing.T, socket string) {
			listen(t, socket)
			must.Do(t, os.Chmod(filepath.Dir(socket), 0o755))
			must.Do(t, os.Chmod(socket, 0))
			nobody.Become(t)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			socket := socketPath(t)
			test.prepare(t, socket)
			lines := make(logLines, 100)
			cache := nodecache.New(socket, slog.New(slog.NewTextHandler(lines, nil)))
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- cache.Run(ctx) }()
			want := "qos-nri-plugin does not answer on " + socket +
				`: connection error: desc = "transport: Error while dialing: dial unix ` + socket + ": connect: " + test.kernel + `"; ` + test.remedy
			state := await(t, cache, "the cache reports the problem", func(s nodecache.State) bool { return s.Problem == want })
			_, again := cache.Get()
			<-again // closed by the next attempt
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}

			if state.Ready() {
				t.Error("the state is ready, although the socket is unusable")
			}

			if line := <-lines; len(lines) > 0 || strings.Count(line, "\n") != 1 || !strings.Contains(line, "level=WARN") ||
				!strings.Contains(line, test.remedy) {
				t.Errorf("the log has %q, and %d lines more; want one line", line, len(lines))
			}
		})
	}
}
