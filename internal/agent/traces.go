// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/nriplugin"
	"github.com/qos-nri/qos-nri-plugin/internal/tracing"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

// observe returns the function that is called after each hook. This function records metrics and, if `tracer` is not nil,
// spans.
func observe(hooks *hookMetrics, tracer *tracing.Exporter) func(nriplugin.Hook) {
	return func(h nriplugin.Hook) {
		hooks.observe(h.Name, h.Took, h.Err)
		if tracer != nil {
			tracer.Record(tracing.Span{Name: h.Name, Began: h.Began, Took: h.Took, Err: h.Err, Attributes: attributesOf(h)})
		}
	}
}

// attributesOf returns the attributes of a hook. The keys are OpenTelemetry's semantic conventions.
func attributesOf(h nriplugin.Hook) []tracing.Attribute {
	all := []tracing.Attribute{}
	for _, a := range []tracing.Attribute{
		{Key: "k8s.namespace.name", Value: h.Pod.GetNamespace()}, {Key: "k8s.pod.name", Value: h.Pod.GetName()},
		{Key: "k8s.pod.uid", Value: h.Pod.GetUid()}, {Key: "k8s.container.name", Value: h.Container.GetName()},
		{Key: "container.id", Value: h.Container.GetId()},
	} {
		if a.Value != "" {
			all = append(all, tracing.Attribute{Key: a.Key, Value: printable.Text(a.Value, maxAttribute)})
		}
	}
	return all
}

// maxAttribute is the maximum length of a name in an attribute, in bytes. Names that Kubernetes allows are shorter.
const maxAttribute = 256

// Update changes the classes of a running container or pod.
func (r refreshing) Update(ctx context.Context, owner qos.Subject, requests map[string]string) error {
	began := time.Now()
	err := r.Node.Update(ctx, owner, requests)
	if r.tracer != nil {
		var changes []string
		for _, resource := range slices.Sorted(maps.Keys(requests)) {
			changes = append(changes, resource+"="+requests[resource])
		}
		r.tracer.Record(tracing.Span{Name: "UpdateClasses", Began: began, Took: time.Since(began), Err: err, Attributes: []tracing.Attribute{
			{Key: "k8s.pod.uid", Value: owner.PodUID}, {Key: "k8s.container.name", Value: owner.Container},
			{Key: "qos.classes", Value: strings.Join(changes, ",")},
		}})
	}
	return err
}
