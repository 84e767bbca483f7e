// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collector blocks each scrape until `release` is closed.
type collector struct{ collecting, release chan struct{} }

func (c collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(chan<- prometheus.Metric) {
	c.collecting <- struct{}{}
	<-c.release
}

// serve runs a server until the end of the test, and fails the test if the server fails.
func serve(t *testing.T, listener net.Listener, registry *prometheus.Registry) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- NewServer(registry, func() error { return nil }).Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
}

func serveTCP(t *testing.T, registry *prometheus.Registry) (address string) {
	t.Helper()
	listener, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, listener, registry)
	return listener.Addr().String()
}

const request = "GET %s HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n"

// dial connects from an address of this machine.
func dial(t *testing.T, from, to string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// get sends a request over a connection and returns the status of the answer.
func get(t *testing.T, conn net.Conn, path string) int {
	t.Helper()
	fmt.Fprintf(conn, request, path)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s is not answered: %v", path, err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}

const prober, scraper, attacker = "127.0.0.1", "127.0.0.2", "127.0.0.3"

func TestAClientThatOpensManyConnectionsLosesOnlyItsOwn(t *testing.T) {
	address := serveTCP(t, NewRegistry())
	scrapes := dial(t, scraper, address)
	if status := get(t, scrapes, "/metrics"); status != http.StatusOK {
		t.Fatalf("a scrape is answered with %d", status)
	}

	var idle []net.Conn
	for range 10 * maxConnections {
		conn := dial(t, attacker, address)
		fmt.Fprintf(conn, request, "/healthz")
		idle = append(idle, conn)
	}

	// The server keeps at most the newest maxConnections.
	for _, conn := range idle[:9*maxConnections] {
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("an old connection of the client stays open")
		}
	}

	for _, path := range []string{"/healthz", "/readyz"} {
		if status := get(t, dial(t, prober, address), path); status != http.StatusOK {
			t.Errorf("%s is answered with %d", path, status)
		}
	}

	if status := get(t, scrapes, "/metrics"); status != http.StatusOK {
		t.Errorf("another client's scrape over its old connection is answered with %d, want 200", status)
	}
}

func TestClientsThatReadNothingTakeLittleMemory(t *testing.T) {
	const clients, limit = 900, 8 << 20
	address := serveTCP(t, NewRegistry())
	before := memory()

	scrapes := strings.Repeat(fmt.Sprintf(request, "/metrics"), 50)
	for range clients {
		conn := dial(t, attacker, address)
		if err := conn.(*net.TCPConn).SetReadBuffer(1); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		_, _ = conn.Write([]byte(scrapes)) // fails at the deadline, because the server stops reading
	}

	if after := memory(); after > before+limit {
		t.Errorf("%d clients that read nothing take %d KiB", clients, (after-before)>>10)
	}

	// Probes are still answered.
	if status := get(t, dial(t, prober, address), "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz is answered with %d", status)
	}
}

// memory returns the memory that the Go runtime uses for objects and stacks of this process, in bytes.
func memory() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapInuse + stats.StackInuse
}

func TestProbesAreAnsweredWhileScrapesCollect(t *testing.T) {
	registry, blocks := prometheus.NewRegistry(), collector{make(chan struct{}), make(chan struct{})}
	registry.MustRegister(blocks)
	address := serveTCP(t, registry)

	answers := make(chan int, maxScrapes)
	for range maxScrapes {
		conn := dial(t, scraper, address)
		go func() { answers <- get(t, conn, "/metrics") }()
		<-blocks.collecting
	}

	for path, want := range map[string]int{
		"/metrics": http.StatusServiceUnavailable, "/healthz": http.StatusOK, "/readyz": http.StatusOK,
	} {
		if status := get(t, dial(t, prober, address), path); status != want {
			t.Errorf("%s is answered with %d, want %d", path, status, want)
		}
	}

	close(blocks.release)
	for range maxScrapes {
		if status := <-answers; status != http.StatusOK {
			t.Errorf("an earlier scrape is answered with %d", status)
		}
	}
}

func TestLargeHeadersAreRefused(t *testing.T) {
	conn := dial(t, attacker, serveTCP(t, NewRegistry()))
	fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", 16<<10))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("16 KiB of headers are answered with %s", response.Status)
	}
}

// pipes is a listener for connections in memory. Their deadlines follow the clock of a synctest bubble.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (p pipes) dial() net.Conn {
	client, server := net.Pipe()
	p <- server
	return client
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// TestAScrapeIsAnsweredAlthoughOtherClientsReadNothing has as many such clients as may collect metrics at the same time. At the end of the
// test, they are still connected, and `serve` checks that the server ends without an error.
func TestAScrapeIsAnsweredAlthoughOtherClientsReadNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := make(pipes)
		serve(t, listener, NewRegistry())
		for range maxScrapes {
			fmt.Fprintf(listener.dial(), request, "/metrics")
		}
		synctest.Wait()
		if status := get(t, listener.dial(), "/metrics"); status != http.StatusOK {
			t.Errorf("a scrape is answered with %d", status)
		}
	})
}

// disconnected waits until the server closes its end of a pipe. If the server never does so, synctest reports a deadlock.
func disconnected(conn net.Conn) {
	for err := error(nil); err == nil; _, err = conn.Write([]byte("\r")) {
	}
}

func TestASilentClientIsDisconnected(t *testing.T) {
	for _, test := range []struct {
		name string
		// The field `send` has the bytes that the client sends. If the field `reads` is true, the client then reads until the
		// server closes the connection.
		send  string
		reads bool
	}{
		{"that sends nothing", "", true},
		{"that sends no end of its headers", "GET /healthz HTTP/1.1\r\n", true},
		{"that reads no metrics", fmt.Sprintf(request, "/metrics"), false},
		{"that sends no second request", fmt.Sprintf(request, "/healthz"), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := make(pipes)
				serve(t, listener, NewRegistry())
				conn := listener.dial()
				_, _ = io.WriteString(conn, test.send)
				if test.reads {
					_, _ = io.Copy(io.Discard, conn)
				}
				disconnected(conn)
			})
		})
	}
}
