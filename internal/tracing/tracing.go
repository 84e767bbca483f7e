// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tracing sends spans to an OpenTelemetry collector by OTLP over HTTP with JSON (opentelemetry.io/docs/specs/otlp).
// It does not use the OpenTelemetry SDK, because the SDK would be linked into every plugin, even a plugin that sends no
// spans.
package tracing

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// queueSize is the maximum number of spans that wait to be sent. Further spans are dropped.
	queueSize = 2048
	// batchSize is the maximum number of spans in a request, and batchTime is how long a span may wait for further spans.
	batchSize = 512
	batchTime = 5 * time.Second
	// requestTime limits the duration of a request. flushTime limits the last request when the process ends.
	requestTime = 10 * time.Second
	flushTime   = time.Second
)

// Span is an operation that has ended.
type Span struct {
	Name       string
	Began      time.Time
	Took       time.Duration
	Attributes []Attribute
	// Err is nil if the operation succeeded.
	Err error
}

// Attribute is an OpenTelemetry attribute of a span or of the process.
type Attribute struct{ Key, Value string }

// Exporter sends spans. It is safe for concurrent use. A nil Exporter drops all spans.
type Exporter struct {
	endpoint string
	resource []Attribute
	log      *slog.Logger
	spans    chan Span
	// lost is the number of spans that were dropped since the last log message about dropped spans.
	lost    atomic.Uint64
	failing bool // true after a request that failed; only Run uses it
}

// New returns an exporter for the collector whose URL is endpoint. If the URL has no path, New adds the path /v1/traces.
// The parameter `resource` has the attributes of this process. New does no I/O.
func New(endpoint string, resource []Attribute, log *slog.Logger) (*Exporter, error) {
	parsed, err := url.Parse(endpoint)
	if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return nil, fmt.Errorf("%q is not the URL of an OpenTelemetry collector; write e.g. http://127.0.0.1:4318", endpoint)
	}
	if strings.Trim(parsed.Path, "/") == "" {
		parsed.Path = "/v1/traces"
	}
	return &Exporter{endpoint: parsed.String(), resource: resource, log: log, spans: make(chan Span, queueSize)}, nil
}

// ParseAttributes reads the value of the environment variable OTEL_RESOURCE_ATTRIBUTES, e.g. "k8s.node.name=node-1". The
// format is specified in opentelemetry.io/docs/specs/otel/resource/sdk. ParseAttributes skips malformed pairs.
func ParseAttributes(text string) (all []Attribute) {
	for pair := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if key = strings.TrimSpace(key); found && key != "" && err == nil {
			all = append(all, Attribute{key, value})
		}
	}
	return all
}

// Record queues a span. It never blocks.
func (e *Exporter) Record(s Span) {
	if e == nil {
		return
	}
	select {
	case e.spans <- s:
	default:
		e.lost.Add(1)
	}
}

// Run sends spans until ctx ends. It logs the first of several failed requests. After the next successful request, it
// logs the number of dropped spans.
func (e *Exporter) Run(ctx context.Context) {
	for {
		batch := e.next(ctx)
		if len(batch) == 0 {
			return
		}
		e.send(ctx, batch)
	}
}

// next waits for spans, and returns a batch of them. After ctx has ended, it returns the spans that are queued.
func (e *Exporter) next(ctx context.Context) (batch []Span) {
	select {
	case s := <-e.spans:
		batch = append(batch, s)
	case <-ctx.Done():
	}
	full := time.NewTimer(batchTime)
	defer full.Stop()
	for len(batch) < batchSize {
		select {
		case s := <-e.spans:
			batch = append(batch, s)
			continue
		default:
		}
		if ctx.Err() != nil {
			break
		}
		select {
		case s := <-e.spans:
			batch = append(batch, s)
		case <-full.C:
			return batch
		case <-ctx.Done():
		}
	}
	return batch
}

// send sends a batch. If the request fails, the batch is dropped.
func (e *Exporter) send(ctx context.Context, batch []Span) {
	limit := requestTime
	if ctx.Err() != nil {
		limit = flushTime
	}
	request, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()

	err := e.post(request, e.message(batch))
	if err != nil {
		e.lost.Add(uint64(len(batch)))
	}
	switch {
	case err != nil && !e.failing:
		e.log.Warn("cannot send traces; dropping them", "endpoint", e.endpoint, "error", err)
	case err == nil && e.lost.Load() > 0:
		e.log.Warn("traces were dropped", "endpoint", e.endpoint, "spans", e.lost.Swap(0))
	}
	e.failing = err != nil
}

func (e *Exporter) post(ctx context.Context, m message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		var outer *url.Error
		if errors.As(err, &outer) {
			err = outer.Err // the outer error repeats the endpoint
		}
		return err
	}
	defer func() { _ = response.Body.Close() }()

	answer, _ := io.ReadAll(io.LimitReader(response.Body, 200))
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("the collector answers %s: %s", response.Status, strings.TrimSpace(string(answer)))
	}
	return nil
}

func id(size int) string {
	data := make([]byte, size)
	_, _ = rand.Read(data) // never fails
	return hex.EncodeToString(data)
}
