// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	registrations        prometheus.Counter
	allocations          *prometheus.CounterVec
	devices, unaccounted *prometheus.GaugeVec
}

// newMetrics creates the metrics and adds them to the registry. It calls `registered` to get the number of endpoints
// that the kubelet watches.
func newMetrics(registry prometheus.Registerer, registered func() float64) *metrics {
	factory := promauto.With(registry)
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "qos_shim_device_plugins", Help: "Classes with a device plugin that the kubelet watches.",
	}, registered)
	m := &metrics{
		registrations: factory.NewCounter(prometheus.CounterOpts{
			Name: "qos_shim_registrations_total", Help: "Registrations of device plugins that kubelet has accepted.",
		}),
		allocations: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "qos_shim_allocations_total", Help: "Allocate requests of kubelet, by outcome: granted or refused.",
		}, []string{"outcome"}),
		devices: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "qos_shim_devices", Help: "Devices that the shim lists for kubelet, by health.",
		}, []string{"resource", "health"}),
		unaccounted: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "qos_shim_unaccounted_assignments",
			Help: "Assignments without a device from kubelet, in classes with a capacity; the shim withholds one free device for each assignment.",
		}, []string{"resource"}),
	}
	m.allocations.WithLabelValues("granted")
	m.allocations.WithLabelValues("refused")
	return m
}

func (m *metrics) published(extended string, devices []device, unaccounted int) {
	healthy := 0
	for _, d := range devices {
		if d.healthy {
			healthy++
		}
	}
	m.devices.WithLabelValues(extended, "healthy").Set(float64(healthy))
	m.devices.WithLabelValues(extended, "unhealthy").Set(float64(len(devices) - healthy))
	m.unaccounted.WithLabelValues(extended).Set(float64(unaccounted))
}

func (m *metrics) removed(extended string) {
	m.devices.DeletePartialMatch(prometheus.Labels{"resource": extended})
	m.unaccounted.DeleteLabelValues(extended)
}
