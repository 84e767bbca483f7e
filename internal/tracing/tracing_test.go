// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/tracing"
)

func TestOnlyURLsOfCollectorsAreAccepted(t *testing.T) {
	for _, valid := range []string{"http://127.0.0.1:4318", "https://collector.example/", "http://[::1]:4318/v1/traces"} {
		if _, err := tracing.New(valid, nil, nil); err != nil {
			t.Errorf("%s: %v", valid, err)
		}
	}
	for _, invalid := range []string{"127.0.0.1:4318", "collector", "grpc://collector:4317", "http://", "http://a b"} {
		if _, err := tracing.New(invalid, nil, nil); err == nil || !strings.Contains(err.Error(), "write e.g. http://127.0.0.1:4318") {
			t.Errorf("%s: the error is %v, want one with an example", invalid, err)
		}
	}
}

func TestAttributesOfTheEnvironmentAreDecodedAndMalformedOnesIgnored(t *testing.T) {
	want := []tracing.Attribute{{Key: "k8s.node.name", Value: "node-1"}, {Key: "a", Value: "x,y"}}
	if diff := cmp.Diff(want, tracing.ParseAttributes(" k8s.node.name = node-1,a=x%2Cy,malformed,=b,c=%zz")); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if got := tracing.ParseAttributes(""); got != nil {
		t.Errorf("an empty variable has the attributes %v", got)
	}
}

// run sends the queued spans, as Run does when the process ends.
func run(e *tracing.Exporter) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e.Run(ctx)
}

func TestAFailingCollectorIsLoggedOnceWithTheLostSpans(t *testing.T) {
	broken := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("the request is %s %s %s", r.Method, r.URL, r.Header)
		}
		if broken {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
			return
		}
	}))
	defer server.Close()
	var log bytes.Buffer
	e, err := tracing.New(server.URL, nil, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}

	for range 2 {
		e.Record(tracing.Span{Name: "lost"})
		run(e)
	}

	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "503 Service Unavailable: out of order") {
		t.Errorf("the log is %s; want one line with the answer of the collector", got)
	}

	log.Reset()
	broken = false
	e.Record(tracing.Span{Name: "sent"})
	run(e)
	if got := log.String(); !strings.Contains(got, "traces were dropped") || !strings.Contains(got, "spans=2") {
		t.Errorf("the log is %s; want the two lost spans", got)
	}
}

func TestAFullQueueDropsSpans(t *testing.T) {
	var requests int
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests++ }))
	defer server.Close()
	var log bytes.Buffer
	e, err := tracing.New(server.URL, nil, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}

	for range 3000 { // the queue holds 2048 spans, and a request has at most 512
		e.Record(tracing.Span{Name: "hook"})
	}

	run(e)
	if requests != 4 || !strings.Contains(log.String(), "spans=952") {
		t.Errorf("%d requests, want 4; the log is %s; want 952 dropped spans", requests, log.String())
	}
}

func TestWithoutAnExporterSpansAreDropped(*testing.T) {
	var none *tracing.Exporter
	none.Record(tracing.Span{Name: "hook"})
}
