// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
)

// TestEachMetricIsDocumented compares the metrics that the plugin exports, and their labels, with docs/metrics.md.
func TestEachMetricIsDocumented(t *testing.T) {
	kinds := config.OfflineKinds()
	n := node.New(node.Options{Kinds: kinds, Log: slog.New(slog.DiscardHandler)})
	hooks := newHookMetrics()
	exported := map[string]string{}
	for _, c := range []prometheus.Collector{hooks.seconds, hooks.errors, newCollector(n), newUsageCollector(n, kinds)} {
		descs := make(chan *prometheus.Desc, 100)
		c.Describe(descs)
		close(descs)
		for desc := range descs {
			match := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{(.*)\}\}`).FindStringSubmatch(desc.String())
			exported[match[1]] = match[2]
		}
	}

	page, err := os.ReadFile("../../docs/metrics.md")
	must(t, err)

	documented := map[string]string{}
	for _, match := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| \\w+ \\| (.*?) \\|").FindAllStringSubmatch(string(page), -1) {
		if !strings.HasPrefix(match[1], "qos_shim_") {
			documented[match[1]] = strings.NewReplacer("`", "", " ", "").Replace(match[2])
		}
	}

	if diff := cmp.Diff(exported, documented); diff != "" {
		t.Errorf("metrics in docs/metrics.md (-exported +documented):\n%s", diff)
	}
}

// TestCountersAreExportedBeforeTheFirstEvent also compares the reasons of refusals with docs/plugin.md.
func TestCountersAreExportedBeforeTheFirstEvent(t *testing.T) {
	registry, hooks := prometheus.NewRegistry(), newHookMetrics()
	registry.MustRegister(hooks.errors, newCollector(node.New(node.Options{Log: slog.New(slog.DiscardHandler)})))
	hooks.observe("StartContainer", time.Millisecond, nil)
	families, err := registry.Gather()
	must(t, err)

	reasons, hookErrors := map[string]float64{}, -1.0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			switch family.GetName() {
			case "qos_refusals_total":
				reasons[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
			case "qos_hook_errors_total":
				hookErrors = metric.GetCounter().GetValue()
			}
		}
	}

	if hookErrors != 0 {
		t.Errorf("qos_hook_errors_total is %v after a hook without an error, want 0 (-1: missing)", hookErrors)
	}

	page, err := os.ReadFile("../../docs/plugin.md")
	must(t, err)

	_, text, _ := strings.Cut(string(page), "- `qos_refusals_total` has the label `reason`:")
	text, _, _ = strings.Cut(text, "\n- ")
	documented := map[string]float64{}
	for _, match := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(text, -1) {
		documented[match[1]] = 0
	}

	if diff := cmp.Diff(documented, reasons); diff != "" {
		t.Errorf("reasons of refusals (-docs/plugin.md +exported):\n%s", diff)
	}
}
