// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"strconv"
)

// message is an ExportTraceServiceRequest in the JSON form of OTLP (github.com/open-telemetry/opentelemetry-proto).
type message struct {
	ResourceSpans [1]resourceSpans `json:"resourceSpans"`
}

type resourceSpans struct {
	Resource struct {
		Attributes []keyValue `json:"attributes"`
	} `json:"resource"`
	ScopeSpans [1]scopeSpans `json:"scopeSpans"`
}

type scopeSpans struct {
	Scope struct {
		Name string `json:"name"`
	} `json:"scope"`
	Spans []span `json:"spans"`
}

type span struct {
	TraceID    string     `json:"traceId"`
	SpanID     string     `json:"spanId"`
	Name       string     `json:"name"`
	Kind       int        `json:"kind"`
	Start      string     `json:"startTimeUnixNano"`
	End        string     `json:"endTimeUnixNano"`
	Attributes []keyValue `json:"attributes,omitempty"`
	Status     status     `json:"status"`
}

type keyValue struct {
	Key   string `json:"key"`
	Value struct {
		StringValue string `json:"stringValue"`
	} `json:"value"`
}

type status struct {
	Code    int    `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// These are values of enumerations in OTLP.
const (
	kindServer  = 2 // the runtime, a client or the kernel has caused the operation
	statusError = 2
)

// message returns the message for a batch. Each span is a trace of its own, because neither NRI nor the node API passes a trace context.
func (e *Exporter) message(batch []Span) message {
	var m message
	resource := &m.ResourceSpans[0]
	resource.Resource.Attributes = keyValues(e.resource)
	scope := &resource.ScopeSpans[0]
	scope.Scope.Name = "github.com/qos-nri/qos-nri-plugin"
	for _, s := range batch {
		sent := span{
			TraceID: id(16), SpanID: id(8), Name: s.Name, Kind: kindServer,
			Start: nanoseconds(s.Began.UnixNano()), End: nanoseconds(s.Began.Add(s.Took).UnixNano()), Attributes: keyValues(s.Attributes),
		}
		if s.Err != nil {
			sent.Status = status{Code: statusError, Message: s.Err.Error()}
		}
		scope.Spans = append(scope.Spans, sent)
	}
	return m
}

// nanoseconds formats a 64-bit number, which is a string in the JSON form of protobuf.
func nanoseconds(n int64) string { return strconv.FormatInt(n, 10) }

func keyValues(attributes []Attribute) []keyValue {
	all := make([]keyValue, len(attributes))
	for i, a := range attributes {
		all[i].Key, all[i].Value.StringValue = a.Key, a.Value
	}
	return all
}
