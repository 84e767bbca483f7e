// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/qos-nri/qos-nri-plugin/internal/tracing"
)

// receiver starts the collector's OTLP receiver, which runs until the test ends. It returns the receiver's URL, and the
// spans that the receiver gets.
func receiver(t *testing.T) (url string, received *consumertest.TracesSink) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	address := listener.Addr().String()
	listener.Close()

	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	config.Protocols.HTTP.GetOrInsertDefault().ServerConfig.NetAddr.Endpoint = address
	received = &consumertest.TracesSink{}
	r, err := factory.CreateTraces(t.Context(), receivertest.NewNopSettings(factory.Type()), config, received)
	if err != nil {
		t.Fatal(err)
	}

	if err := r.Start(t.Context(), componenttest.NewNopHost()); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := r.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})

	return "http://" + address, received
}

// sent has the fields of a span that the collector received.
type sent struct {
	Name, Message string
	Failed        bool
	Began         time.Time
	Took          time.Duration
	Attributes    map[string]any
	Process       map[string]any
}

func TestTheCollectorAcceptsTheSpans(t *testing.T) {
	url, received := receiver(t)
	exporter, err := tracing.New(url, []tracing.Attribute{{Key: "service.name", Value: "qos-nri-plugin"}}, slog.Default())
	if err != nil {
		t.Fatal(err)
	}

	began := time.Date(2026, 5, 4, 12, 0, 0, 123456789, time.UTC)
	exporter.Record(tracing.Span{Name: "CreateContainer", Began: began, Took: 3 * time.Millisecond, Attributes: []tracing.Attribute{{Key: "k8s.pod.name", Value: "web"}}})
	exporter.Record(tracing.Span{Name: "StartContainer", Began: began, Took: time.Second, Err: errors.New(`class "gold" is full`)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // Run still sends the queued spans
	exporter.Run(ctx)

	process := map[string]any{"service.name": "qos-nri-plugin"}
	want := []sent{
		{Name: "CreateContainer", Began: began, Took: 3 * time.Millisecond, Attributes: map[string]any{"k8s.pod.name": "web"}, Process: process},
		{Name: "StartContainer", Message: `class "gold" is full`, Failed: true, Began: began, Took: time.Second, Attributes: map[string]any{}, Process: process},
	}

	if diff := cmp.Diff(want, spansIn(t, received)); diff != "" {
		t.Errorf("spans (-want +received):\n%s", diff)
	}
}

// spansIn returns all received spans. Each span must have a trace ID that no other span has.
func spansIn(t *testing.T, received *consumertest.TracesSink) (all []sent) {
	t.Helper()
	ids := map[any]bool{}
	for _, traces := range received.AllTraces() {
		for _, resource := range traces.ResourceSpans().All() {
			for _, scope := range resource.ScopeSpans().All() {
				for _, span := range scope.Spans().All() {
					if span.TraceID().IsEmpty() || span.SpanID().IsEmpty() || ids[span.TraceID()] {
						t.Errorf("the span %s has the trace ID %v and the ID %v", span.Name(), span.TraceID(), span.SpanID())
					}
					ids[span.TraceID()] = true
					start := span.StartTimestamp().AsTime()
					all = append(all, sent{
						Name: span.Name(), Message: span.Status().Message(), Failed: span.Status().Code() == ptrace.StatusCodeError,
						Began: start, Took: span.EndTimestamp().AsTime().Sub(start),
						Attributes: span.Attributes().AsRaw(), Process: resource.Resource().Attributes().AsRaw(),
					})
				}
			}
		}
	}

	return all
}
