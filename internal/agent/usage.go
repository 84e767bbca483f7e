// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// usageCollector measures the usage of all classes at each scrape. A series that the kernel does not measure now is missing.
type usageCollector struct {
	node *node.Node
	// descs has the description of each measure, by the name of the measure.
	descs map[string]*prometheus.Desc
}

func newUsageCollector(n *node.Node, kinds []classes.Kind) usageCollector {
	c := usageCollector{node: n, descs: map[string]*prometheus.Desc{}}
	for _, kind := range kinds {
		for _, measure := range kind.Measures {
			labels := []string{"resource", "class"}
			if measure.Part != "" {
				labels = append(labels, measure.Part)
			}
			c.descs[measure.Name] = prometheus.NewDesc("qos_class_"+measure.Name, measure.Help, labels, nil)
		}
	}
	return c
}

// Describe implements prometheus.Collector.
func (c usageCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c usageCollector) Collect(ch chan<- prometheus.Metric) {
	sample, err := c.node.Usage(context.Background())
	if err != nil {
		return // the kernel has not answered another scrape; qos_kernel_calls_blocked reports that
	}

	for _, class := range sample.Classes {
		for series, value := range class.Reading {
			labels, kind := []string{class.Resource, class.Class}, prometheus.GaugeValue
			if series.Part != "" {
				labels = append(labels, series.Part)
			}
			if series.Cumulative() {
				kind = prometheus.CounterValue
			}
			if desc, known := c.descs[series.Measure]; known {
				ch <- constMetric(desc, kind, value, labels)
			}
		}
	}
}

// constMetric returns a metric or, for labels that do not fit, one that makes the scrape report the error.
func constMetric(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels []string) prometheus.Metric {
	metric, err := prometheus.NewConstMetric(desc, kind, value, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return metric
}
