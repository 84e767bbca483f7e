// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// usageCollector measures the usage of all classes and monitored containers at each scrape. A scrape lacks the values
// that the kernel does not provide at that time.
type usageCollector struct {
	node *node.Node
	// The maps have the description of each measure. Their keys are the names of the measures.
	classes, containers, volumes map[string]*prometheus.Desc
}

func newUsageCollector(n *node.Node, kinds []classes.Kind) usageCollector {
	c := usageCollector{node: n, classes: map[string]*prometheus.Desc{}, containers: map[string]*prometheus.Desc{}, volumes: map[string]*prometheus.Desc{}}
	for _, kind := range kinds {
		describe(c.classes, "qos_class_", kind.Measures, "resource", "class")
		describe(c.containers, "container_", kind.Monitored, "namespace", "pod", "container", "class")
		describe(c.volumes, "qos_volume_", kind.OfVolumes, "resource", "namespace", "pod", "container", "volume", "class")
	}
	return c
}

func describe(descs map[string]*prometheus.Desc, prefix string, measures []classes.Measure, labels ...string) {
	for _, measure := range measures {
		all := slices.Clone(labels)
		if measure.Part != "" {
			all = append(all, measure.Part)
		}
		descs[measure.Name] = prometheus.NewDesc(prefix+measure.Name, measure.Help, all, nil)
	}
}

func (c usageCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, descs := range []map[string]*prometheus.Desc{c.classes, c.containers, c.volumes} {
		for _, desc := range descs {
			ch <- desc
		}
	}
}

func (c usageCollector) Collect(ch chan<- prometheus.Metric) {
	sample, err := c.node.Usage(context.Background())
	if err != nil {
		return // an earlier measurement still waits for the kernel; qos_kernel_calls_blocked reports that
	}

	for _, class := range sample.Classes {
		collect(ch, c.classes, class.Reading, class.Resource, class.Class)
	}

	seen := map[[5]string]bool{}
	for _, h := range sample.Holders {
		// Two containers of the same name can run for a moment. A scrape that has a series twice fails as a whole.
		name := [5]string{h.Resource, h.PodNamespace, h.PodName, h.Container, h.Volume}
		if seen[name] {
			continue
		}
		seen[name] = true
		if h.Volume != "" {
			collect(ch, c.volumes, h.Reading, h.Resource, h.PodNamespace, h.PodName, h.Container, h.Volume, h.Class)
			continue
		}
		collect(ch, c.containers, h.Reading, h.PodNamespace, h.PodName, h.Container, h.Class)
	}
}

func collect(ch chan<- prometheus.Metric, descs map[string]*prometheus.Desc, reading classes.Reading, names ...string) {
	for series, value := range reading {
		labels, kind := slices.Clone(names), prometheus.GaugeValue
		if series.Part != "" {
			labels = append(labels, series.Part)
		}
		if series.Cumulative() {
			kind = prometheus.CounterValue
		}
		if desc, known := descs[series.Measure]; known {
			ch <- constMetric(desc, kind, value, labels)
		}
	}
}

// constMetric returns a metric. If the labels do not fit the description, the scrape reports the error.
func constMetric(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels []string) prometheus.Metric {
	metric, err := prometheus.NewConstMetric(desc, kind, value, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return metric
}
