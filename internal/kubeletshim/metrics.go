// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletshim

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
)

// collector tells what is known of plugin and program.
type collector struct {
	feed        *nodecache.Cache
	version     string
	ready, info *prometheus.Desc
}

func newCollector(feed *nodecache.Cache, version string) *collector {
	return &collector{
		feed: feed, version: version,
		ready: prometheus.NewDesc("qos_shim_plugin_ready", "Whether qos-nri-plugin answers, with classes in force and a runtime (1) or not (0).", nil, nil),
		info:  prometheus.NewDesc("qos_shim_build_info", "The version of the program; always 1.", []string{"version"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.ready
	ch <- c.info
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	value := 0.0
	if state, _ := c.feed.Get(); state.Ready() {
		value = 1
	}
	ch <- prometheus.MustNewConstMetric(c.ready, prometheus.GaugeValue, value)
	ch <- prometheus.MustNewConstMetric(c.info, prometheus.GaugeValue, 1, c.version)
}
