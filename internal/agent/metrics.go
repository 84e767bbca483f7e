// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/metrics"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/kernel"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// newMetricsServer returns the server of --metrics-address. It also serves commands of kubectl if the address names no host, because the
// plugin then runs in a pod. On a node, every user of the node could connect.
func newMetricsServer(n *node.Node, address string, hooks *hookMetrics, kinds []classes.Kind) *metrics.Server {
	registry := metrics.NewRegistry()
	registry.MustRegister(hooks.seconds, hooks.errors, newCollector(n), newUsageCollector(n, kinds))
	server := metrics.NewServer(registry, func() error { return ready(n.Status(), n.BlockedCalls()) })
	if host, _, err := net.SplitHostPort(address); err != nil || host != "" {
		return server
	}
	mux, reports := http.NewServeMux(), reporter{n}
	mux.Handle("/", server.Handler)
	mux.HandleFunc("GET /usage", toPodItself("top usage", reports.usage))
	mux.HandleFunc("GET /recommend", toPodItself("recommend", reports.recommend))
	mux.HandleFunc("GET /blame", toPodItself("blame", reports.blame))
	server.Handler = mux
	return server
}

// ready returns why the plugin is not ready. It returns nil if the plugin is ready.
func ready(status state.Status, blocked []kernel.BlockedCall) error {
	switch {
	case status.Config.Err != nil:
		return fmt.Errorf("class files are not applied: %w", status.Config.Err)
	case !status.Runtime.Synchronized && status.Runtime.SyncFailure != nil:
		return status.Runtime.SyncFailure
	case !status.Runtime.Synchronized:
		return errors.New("not registered with the container runtime")
	}
	return kernel.Error(blocked)
}

type hookMetrics struct {
	seconds *prometheus.HistogramVec
	errors  *prometheus.CounterVec
}

func newHookMetrics() *hookMetrics {
	return &hookMetrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "qos_hook_duration_seconds", Help: "Time that the runtime waited for a hook.",
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 10), // the last bucket ends at 2.6 s, because the runtime waits 2 s for a hook
		}, []string{"hook"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "qos_hook_errors_total", Help: "Hooks that the plugin answered with an error, including refusals.",
		}, []string{"hook"}),
	}
}

func (h *hookMetrics) observe(hook string, took time.Duration, err error) {
	h.seconds.WithLabelValues(hook).Observe(took.Seconds())
	failures := h.errors.WithLabelValues(hook) // exports 0 until the first error
	if err != nil {
		failures.Inc()
	}
}

// collector reads the node's status at each scrape, so that the metrics contain no removed classes. A counter of events
// that have not happened yet is exported with the value 0, because otherwise Prometheus' increase() would not count the
// first event.
type collector struct {
	node *node.Node

	capacity, inUse, available, degraded, monitored, unmonitored, refusals, corrections, adopted, registered, reloaded, reloadTime, blocked,
	held, reached, limitUse *prometheus.Desc
}

func newCollector(n *node.Node) *collector {
	class := []string{"resource", "class"}
	return &collector{
		node:      n,
		capacity:  prometheus.NewDesc("qos_class_capacity", "Maximum number of simultaneous assignments of a class; 0 means unlimited.", class, nil),
		inUse:     prometheus.NewDesc("qos_class_in_use", "Assignments of a class, including draining classes.", class, nil),
		degraded:  prometheus.NewDesc("qos_class_degraded", "1 when a class is enforced only in part; qos-nri-plugin status shows the reason.", class, nil),
		monitored: prometheus.NewDesc("qos_monitored_containers", "Containers of a class that are monitored.", class, nil),
		unmonitored: prometheus.NewDesc("qos_unmonitored_containers", "Containers of a class that are to be monitored and are not, by reason.",
			[]string{"resource", "class", "reason"}, nil),
		held: prometheus.NewDesc("qos_class_held",
			"0 while the containers or pods of a class use more than the class allows, and else 1; absent while it is not measured.", class, nil),
		reached: prometheus.NewDesc("qos_class_limit_reached", "1 if a limit of the class has been reached.", class, nil),
		limitUse: prometheus.NewDesc("qos_class_limit_use_ratio",
			"Highest use of a limit among the containers or pods of a class, over a minute, as a part of the limit.",
			[]string{"resource", "class", "limit", "part"}, nil),
		available: prometheus.NewDesc("qos_resource_available", "1 when a configured resource is available on this machine.", []string{"resource"}, nil),
		refusals:  prometheus.NewDesc("qos_refusals_total", "Containers and pods that were refused, by reason.", []string{"reason"}, nil),
		corrections: prometheus.NewDesc("qos_drift_corrections_total", "Drift corrections, by resource and kind of drift.",
			[]string{"resource", "what"}, nil),
		adopted: prometheus.NewDesc("qos_adopted_containers_total",
			"Running containers that request classes and were created while the plugin was not registered.", nil, nil),
		registered: prometheus.NewDesc("qos_runtime_registered", "1 while the plugin is registered with the container runtime.", nil, nil),
		blocked:    prometheus.NewDesc("qos_kernel_calls_blocked", "Calls into the kernel that have not returned in time.", nil, nil),
		reloaded:   prometheus.NewDesc("qos_config_last_reload_successful", "1 when the most recently read class files are in force.", nil, nil),
		reloadTime: prometheus.NewDesc("qos_config_last_reload_success_timestamp_seconds", "Unix time when class files were last applied.", nil, nil),
	}
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.capacity, c.inUse, c.degraded, c.monitored, c.unmonitored, c.available, c.refusals, c.corrections, c.adopted, c.registered, c.reloaded,
		c.reloadTime, c.blocked, c.held, c.reached, c.limitUse,
	} {
		ch <- d
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	status := c.node.Status()
	for _, r := range status.Resources {
		gauge(ch, c.available, truth(r.Unavailable == nil), r.Name)
		for _, class := range r.Classes {
			gauge(ch, c.capacity, float64(class.Capacity), r.Name, class.Name)
			gauge(ch, c.degraded, truth(r.Degraded[class.Name] != ""), r.Name, class.Name)
			if r.InUse[class.Name] == 0 {
				gauge(ch, c.inUse, 0, r.Name, class.Name)
			}
		}
		for class, count := range r.InUse {
			gauge(ch, c.inUse, float64(count), r.Name, class)
		}
		for class, monitored := range r.Monitored {
			gauge(ch, c.monitored, float64(monitored.Containers), r.Name, class)
			for reason, count := range monitored.Missing {
				gauge(ch, c.unmonitored, float64(count), r.Name, class, reason)
			}
		}
	}

	for _, reason := range state.RefusalReasons() {
		counter(ch, c.refusals, status.Refusals[reason], reason)
	}
	for _, r := range status.Resources {
		for _, what := range state.Drifts() {
			counter(ch, c.corrections, status.Corrections[state.Correction{Resource: r.Name, What: what}], r.Name, what)
		}
	}

	c.collectHeld(ch)
	counter(ch, c.adopted, status.Adopted)
	gauge(ch, c.registered, truth(status.Runtime.Synchronized))
	gauge(ch, c.blocked, float64(len(c.node.BlockedCalls())))
	gauge(ch, c.reloaded, truth(status.Config.Err == nil && !status.Config.Loaded.IsZero()))
	if !status.Config.Loaded.IsZero() {
		gauge(ch, c.reloadTime, float64(status.Config.Loaded.Unix()))
	}
}

// collectHeld reports whether classes hold what they promise. It reports nothing for a class that is not measured.
func (c *collector) collectHeld(ch chan<- prometheus.Metric) {
	for class, v := range c.node.HeldVerdicts() {
		if v.Reason == qos.ReasonNotMeasured {
			continue
		}
		gauge(ch, c.held, truth(v.Reason != qos.ReasonLimitNotHeld), class.Resource, class.Name)
		gauge(ch, c.reached, truth(v.Reason != qos.ReasonNeverReached), class.Resource, class.Name)
		for _, limit := range v.Limits {
			gauge(ch, c.limitUse, limit.Ratio, class.Resource, class.Name, limit.Name, limit.Part)
		}
	}
}

func counter(ch chan<- prometheus.Metric, desc *prometheus.Desc, value uint64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value), labels...)
}

func gauge(ch chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
