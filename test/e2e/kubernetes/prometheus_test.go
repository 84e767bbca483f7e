// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// monitoring has the files that administrators give to Prometheus and Grafana.
const monitoring = deploy + "monitoring/"

// scrapeInterval is how often Prometheus reads the metrics. Rates are over rateInterval, which Grafana would choose for this interval.
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
	server := n.process("prometheus", n.program("prometheus"), "--config.file="+config, "--web.listen-address="+address,
		"--storage.tsdb.path="+filepath.Join(n.dir, "prometheus", "data"))
	server.mustStart(t)
	t.Cleanup(func() { server.mustEnd(t, syscall.SIGTERM) })
	client, err := api.NewClient(api.Config{Address: "http://" + address})
	must(t, err)
	return promv1.NewAPI(client)
}

// scraped waits until Prometheus has found the pods of the installation and reads their metrics, as the jobs that the alerts select.
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

// panel is a query of the dashboard.
type panel struct{ title, expr string }

// panels returns the queries of the dashboard for all nodes, resources and classes.
func panels(t *testing.T) (all []panel) {
	t.Helper()
	text, err := os.ReadFile(monitoring + "dashboard.json")
	must(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	must(t, json.Unmarshal(text, &dashboard))
	values := strings.NewReplacer("$instance", ".*", "$resource", ".*", "$class", ".*", "$__rate_interval", rateInterval)
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all = append(all, panel{p.Title, values.Replace(target.Expr)})
		}
	}
	return all
}

// monitored checks that a real Prometheus finds the pods, that it can evaluate the alerts, and that each panel of the dashboard has data.
func monitored(t *testing.T, n *node) {
	start := time.Now()
	p := n.prometheus(t)
	n.scraped(t, p)

	// Hooks run between two scrapes, so that they have a rate. The container's I/O makes the kernel count the I/O of the class.
	n.run(t, pod{name: "busy", classes: n.asks("gold")})
	n.running(t, "busy")
	n.kubectl(t, "exec", "busy", "--", "workload", "latency", "commit", "/file", "1")
	for _, panel := range panels(t) {
		until(t, "the panel "+panel.title+" has data", func() (bool, string) {
			found, warnings, err := p.QueryRange(t.Context(), panel.expr, promv1.Range{Start: start, End: time.Now(), Step: scrapeInterval})
			if err != nil {
				return false, err.Error()
			}
			return hasData(found), fmt.Sprint(panel.expr, warnings, found)
		})
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

// hasData reports whether the result of a query has a value that Grafana can draw.
func hasData(found model.Value) bool {
	series, _ := found.(model.Matrix)
	return slices.ContainsFunc(series, func(s *model.SampleStream) bool {
		return slices.ContainsFunc(s.Values, func(v model.SamplePair) bool { return !math.IsNaN(float64(v.Value)) })
	})
}
