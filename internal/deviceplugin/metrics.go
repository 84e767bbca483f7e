// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics tells what is published, from the publisher's state at the moment it is asked.
type metrics struct {
	registrations prometheus.Counter
	allocations   *prometheus.CounterVec

	plugins, devices, unaccounted *prometheus.Desc
	endpoints                     func() []*endpoint
}

func newMetrics(endpoints func() []*endpoint) *metrics {
	m := &metrics{
		registrations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "qos_shim_registrations_total", Help: "Registrations of device plugins that kubelet has accepted.",
		}),
		allocations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "qos_shim_allocations_total", Help: "Requests of kubelet for a class, by outcome: granted or refused.",
		}, []string{"outcome"}),
		plugins: prometheus.NewDesc("qos_shim_device_plugins", "Classes that kubelet follows as device plugins.", nil, nil),
		devices: prometheus.NewDesc("qos_shim_devices", "Devices that are listed to kubelet, by health.",
			[]string{"resource", "health"}, nil),
		unaccounted: prometheus.NewDesc("qos_shim_unaccounted_assignments",
			"Assignments of a bounded class that kubelet does not know, and for which devices are withheld.", []string{"resource"}, nil),
		endpoints: endpoints,
	}
	m.allocated(true, 0)
	m.allocated(false, 0)
	return m
}

func (m *metrics) allocated(granted bool, n float64) {
	outcome := "refused"
	if granted {
		outcome = "granted"
	}
	m.allocations.WithLabelValues(outcome).Add(n)
}

// Describe is part of prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	m.registrations.Describe(to)
	m.allocations.Describe(to)
	to <- m.plugins
	to <- m.devices
	to <- m.unaccounted
}

// Collect is part of prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	m.registrations.Collect(to)
	m.allocations.Collect(to)
	registered := 0
	gauge := func(desc *prometheus.Desc, value int, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
	for _, e := range m.endpoints() {
		now := e.look()
		healthy := 0
		for _, d := range now.devices {
			if d.healthy {
				healthy++
			}
		}
		if now.streams > 0 {
			registered++
		}
		gauge(m.devices, healthy, e.extended, "healthy")
		gauge(m.devices, len(now.devices)-healthy, e.extended, "unhealthy")
		gauge(m.unaccounted, now.unaccounted, e.extended)
	}
	gauge(m.plugins, registered)
}
