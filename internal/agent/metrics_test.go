// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"

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
	if err != nil {
		t.Fatal(err)
	}
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
