// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/qos-nri/qos-nri-plugin/test/dashboard"
)

// monitoring has the files that administrators give to Prometheus and Grafana.
const monitoring = deploy + "monitoring/"

// scrapeInterval is the interval at which Prometheus reads the metrics. Rates are averages over rateInterval, which
// Grafana would choose for this scrape interval.
const scrapeInterval, rateInterval = 10 * time.Second, "1m"

// prometheus starts Prometheus with scrape.yaml and rules.yaml, until the test ends. Unlike in a cluster, it runs outside of a pod, and
// therefore needs a kubeconfig.
func (n *node) prometheus(t *testing.T) promv1.API {
	t.Helper()
	scrape, err := os.ReadFile(monitoring + "scrape.yaml")
	must(t, err)
	rules, err := filepath.Abs(monitoring + "rules.yaml")
	must(t, err)
	targets := strings.Replace(string(scrape), "- role: pod\n", "- role: pod\n    kubeconfig_file: "+n.cluster.kubeconfig("admin")+"\n", 1)
	config := n.write(t, "prometheus/prometheus.yaml", fmt.Sprintf(`global: {scrape_interval: %v, evaluation_interval: %[1]v}
scrape_config_files: [%s]
rule_files: [%s]
`, scrapeInterval, n.write(t, "prometheus/scrape.yaml", targets), rules))

	const address = "127.0.0.1:9090"
	n.startProcess(t, "prometheus", n.program("prometheus"), "--config.file="+config, "--web.listen-address="+address,
		"--storage.tsdb.path="+filepath.Join(n.dir, "prometheus", "data"))
	client, err := api.NewClient(api.Config{Address: "http://" + address})
	must(t, err)
	return promv1.NewAPI(client)
}

// scraped waits until Prometheus has found the pods of the installation and reads their metrics, under the names of the
// jobs that the alerts select.
func (n *node) scraped(t *testing.T, p promv1.API) {
	t.Helper()
	want := []string{"qos-plugin " + n.name + " up", "qos-publisher " + n.name + " up", "qos-shim " + n.name + " up"}
	until(t, "Prometheus scrapes plugin, shim and publisher", func() (bool, string) {
		targets, err := p.Targets(t.Context())
		if err != nil {
			return false, err.Error()
		}
		var got, problems []string
		for _, target := range targets.Active {
			got = append(got, fmt.Sprint(target.Labels["job"], " ", target.Labels["instance"], " ", target.Health))
			problems = append(problems, target.LastError)
		}
		slices.Sort(got)
		return slices.Equal(got, want), fmt.Sprint(got, problems)
	})
}

// monitored checks that a real Prometheus finds the pods, that it can evaluate the alerts, and that each panel of the dashboard has data.
// If QOS_DASHBOARD_OUTPUT names a file, the dashboard is drawn into it.
func monitored(t *testing.T, n *node) {
	d, err := dashboard.Read(monitoring + "dashboard.json")
	must(t, err)
	start := time.Now()
	p := n.prometheus(t)
	n.scraped(t, p)

	// The start of the pod calls the plugin's hooks between two scrapes, so that their metrics have a rate. The
	// container's I/O makes the kernel count the I/O of the class.
	n.runPods(t, pod{name: "busy"})
	commit := func(seconds string) {
		n.kubectl(t, "exec", "busy", "--", "workload", "latency", "commit", "/file", seconds)
	}

	commit("1")
	output := os.Getenv("QOS_DASHBOARD_OUTPUT")
	if output != "" {
		liven(t, n, commit)
	}

	data := map[string][]dashboard.Series{}
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			if strings.Contains(target.Query(rateInterval), "core_joules") {
				continue // the node's CPU has no telemetry
			}
			data[panel.Title] = append(data[panel.Title], seriesSince(t, p, start, target)...)
		}
	}

	if output != "" {
		must(t, os.WriteFile(output, []byte(d.SVG(data)), 0o644))
	}

	rules, err := p.Rules(t.Context(), nil)
	must(t, err)
	count := 0
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			count++
			if alert, ok := rule.(promv1.AlertingRule); !ok || alert.Health != promv1.RuleHealthGood {
				t.Errorf("Prometheus cannot evaluate a rule: %+v", rule)
			}
		}
	}

	if count == 0 {
		t.Error("Prometheus has no alerts")
	}
}

// liven makes the charts of the dashboard less flat. For three minutes, a container writes and syncs a file, first in
// one class and then in another. Meanwhile, a pod with a class of limited capacity starts, another pod is refused, and
// a resctrl group is removed.
func liven(t *testing.T, n *node, commit func(seconds string)) {
	commit("60")
	n.qos(t, "set", "busy", "-c", "main", "rdt=gold", "blockio=gold", within)
	n.createPods(t, pod{name: "allocated", classes: n.asks("silver")}, pod{name: "refused", annotations: map[string]string{podAnnotation: "blockio=platinum"}})
	commit("60")
	if output, err := n.machine.run("rmdir", "/sys/fs/resctrl/qos-slow"); err != nil {
		t.Fatal(err, output)
	}
	commit("60")
}

// seriesSince waits until a query has data that Grafana can draw, and returns the data.
func seriesSince(t *testing.T, p promv1.API, start time.Time, target dashboard.Target) (all []dashboard.Series) {
	t.Helper()
	query := target.Query(rateInterval)
	until(t, "Prometheus has data for "+query, func() (bool, string) {
		found, warnings, err := p.QueryRange(t.Context(), query, promv1.Range{Start: start, End: time.Now(), Step: scrapeInterval})
		if err != nil {
			return false, err.Error()
		}

		hasData := false
		all = nil
		for _, stream := range found.(model.Matrix) {
			s := dashboard.Series{Name: target.Legend(labelsOf(stream.Metric))}
			for _, v := range stream.Values {
				s.Points = append(s.Points, dashboard.Point{Time: v.Timestamp.Time(), Value: float64(v.Value)})
				hasData = hasData || !math.IsNaN(float64(v.Value))
			}
			all = append(all, s)
		}

		return hasData, fmt.Sprint(warnings, found)
	})

	return all
}

func labelsOf(metric model.Metric) map[string]string {
	labels := map[string]string{}
	for name, value := range metric {
		labels[string(name)] = string(value)
	}
	return labels
}
