// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
)

// TestEachMetricIsDocumented compares the metrics that the plugin exports with docs/plugin.md.
func TestEachMetricIsDocumented(t *testing.T) {
	kinds := config.OfflineKinds()
	n := node.New(node.Options{Kinds: kinds, Log: slog.New(slog.DiscardHandler)})
	hooks := newHookMetrics()
	exported := map[string]bool{}
	for _, c := range []prometheus.Collector{hooks.seconds, hooks.errors, newCollector(n), newUsageCollector(n, kinds)} {
		descs := make(chan *prometheus.Desc, 100)
		c.Describe(descs)
		close(descs)
		for desc := range descs {
			exported[regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(desc.String())[1]] = true
		}
	}

	page, err := os.ReadFile("../../docs/plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, match := range regexp.MustCompile("`(qos_\\w+|container_(?:llc|memory)_\\w+)").FindAllStringSubmatch(string(page), -1) {
		documented[match[1]] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(exported)), slices.Sorted(maps.Keys(documented))); diff != "" {
		t.Errorf("metrics in docs/plugin.md (-exported +documented):\n%s", diff)
	}
}
