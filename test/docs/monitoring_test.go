// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/qos-nri/qos-nri-plugin/test/dashboard"
)

// query is a PromQL expression of an alert, a panel, or a variable of the dashboard. The field `name` names this alert,
// panel or variable. The field `text` is the template that shows the result.
type query struct{ name, expr, text string }

type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string  `json:"name"`
			Rules []alert `json:"rules"`
		} `json:"groups"`
	}

	must(t, yaml.UnmarshalStrict([]byte(read(t, "deploy/monitoring/rules.yaml")), &file))

	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}

	if len(all) == 0 {
		t.Fatal("there are no alerts")
	}

	return all
}

func panels(t *testing.T) (all []query) {
	t.Helper()
	d, err := dashboard.Read("../../deploy/monitoring/dashboard.json")
	must(t, err)

	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			all = append(all, query{panel.Title, target.Expr, target.LegendFormat})
		}
	}

	if len(all) == 0 {
		t.Fatal("there are no panels")
	}

	for _, variable := range d.Templating.List {
		if values := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(variable.Query); values != nil {
			all = append(all, query{"variable " + variable.Name, values[1], "{{" + values[2] + "}}"})
		}
	}

	return all
}

// words is a set of words from the description of a metric in the docs: the names of the metric's labels, and values
// of these labels.
type words map[string]bool

// documentedMetrics reads docs/metrics.md, and the sections "Metrics" of docs/plugin.md and docs/shim.md. Each item of a
// list and each row of a table describes the metrics that it names. The sections also name metrics of cAdvisor, so names
// with the prefix container_ count only in docs/metrics.md.
func documentedMetrics(t *testing.T) map[string]words {
	t.Helper()
	code := regexp.MustCompile("`([\\w/-]+)`")
	metrics := map[string]words{}
	for page, heading := range map[string]string{"metrics": "# Metrics\n", "plugin": "\n## Metrics\n", "shim": "\n## Metrics\n"} {
		_, text, _ := strings.Cut(read(t, "docs/"+page+".md"), heading)
		for _, item := range regexp.MustCompile(`\n(- |\| |\n)`).Split(text, -1) {
			found := code.FindAllStringSubmatch(item, -1)
			for _, name := range found {
				if !strings.HasPrefix(name[1], "qos_") && (page != "metrics" || !strings.HasPrefix(name[1], "container_")) {
					continue
				}
				if metrics[name[1]] == nil {
					metrics[name[1]] = words{"instance": true, "job": true}
				}
				for _, word := range found {
					metrics[name[1]][word[1]] = true
				}
			}
		}
	}

	return metrics
}

// TestAlertsAndPanelsUseDocumentedMetrics checks that the documentation names each metric, label and label value that a
// query uses.
func TestAlertsAndPanelsUseDocumentedMetrics(t *testing.T) {
	queries := panels(t)
	for _, a := range alerts(t) {
		queries = append(queries, query{a.Alert, a.Expr, a.Annotations["summary"] + a.Annotations["description"]})
	}

	metrics := documentedMetrics(t)
	for _, q := range queries {
		q.check(t, metrics)
	}
}

func (q query) check(t *testing.T, documented map[string]words) {
	t.Helper()
	union := words{}
	for _, use := range regexp.MustCompile(`\b((?:qos|container)_\w+|up)\b(?:\{([^}]*)\})?`).FindAllStringSubmatch(q.expr, -1) {
		known := q.labels(t, documented, use[1])
		maps.Copy(union, known)
		for _, m := range regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"([^"]*)"`).FindAllStringSubmatch(use[2], -1) {
			values := strings.Split(m[2], "|")
			if m[1] == "job" || strings.HasPrefix(m[2], "$") {
				values = nil // a name of scrape.yaml, or a variable of the dashboard
			}
			for _, word := range append(values, m[1]) {
				if !known[word] {
					t.Errorf("%s: %s is not in the documentation of %s", q.name, word, use[1])
				}
			}
		}
	}

	shown := q.text
	for _, group := range regexp.MustCompile(`\b(?:by|on|without) \(([^)]*)\)`).FindAllStringSubmatch(q.expr, -1) {
		shown += "{{" + strings.ReplaceAll(group[1], ", ", "}}{{") + "}}"
	}

	for _, label := range regexp.MustCompile(`\{\{(?: \$labels\.)?(\w+) ?\}\}`).FindAllStringSubmatch(shown, -1) {
		if !union[label[1]] {
			t.Errorf("%s: no metric of %q has the label %s", q.name, q.expr, label[1])
		}
	}

	for _, counter := range regexp.MustCompile(`\b(?:rate|increase)\((\w+)`).FindAllStringSubmatch(q.expr, -1) {
		if !regexp.MustCompile(`_(total|count|sum|bucket)$`).MatchString(counter[1]) {
			t.Errorf("%s: %s is no counter", q.name, counter[1])
		}
	}
}

// labels returns what is documented about a metric. A histogram is documented by its name without a suffix.
func (q query) labels(t *testing.T, documented map[string]words, metric string) words {
	t.Helper()
	if metric == "up" {
		return words{"instance": true, "job": true}
	}

	base := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(metric, "")
	known := maps.Clone(documented[base])
	if known == nil {
		t.Errorf("%s: %s is not documented", q.name, metric)
		return words{}
	}

	if strings.HasSuffix(metric, "_bucket") {
		known["le"] = true
	}

	return known
}

func TestEachAlertHasASeverityAndARunbook(t *testing.T) {
	const page = "https://github.com/qos-nri/qos-nri-plugin/blob/main/docs/troubleshooting.md#"
	anchors := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^##+ ([\w -]+)$`).FindAllStringSubmatch(read(t, "docs/troubleshooting.md"), -1) {
		anchors[strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-")] = true
	}

	for _, a := range alerts(t) {
		anchor, ours := strings.CutPrefix(a.Annotations["runbook_url"], page)
		if !ours || !anchors[anchor] {
			t.Errorf("%s: docs/troubleshooting.md has no section for %q", a.Alert, a.Annotations["runbook_url"])
		}
		if !slices.Contains([]string{"info", "warning", "critical"}, a.Labels["severity"]) {
			t.Errorf("%s has the severity %q", a.Alert, a.Labels["severity"])
		}
		if a.Expr == "" || a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s has no expression, summary or description", a.Alert)
		}
	}
}

// TestEachAlertHasAUnitTest checks that promtool tests, for each alert, a time at which it fires, and a time at which
// it does not.
func TestEachAlertHasAUnitTest(t *testing.T) {
	var file struct {
		Tests []struct {
			Name    string `json:"name"`
			Queries []struct {
				Expr    string `json:"expr"`
				Samples []any  `json:"exp_samples"`
			} `json:"promql_expr_test"`
		} `json:"tests"`
	}

	must(t, yaml.Unmarshal([]byte(read(t, "test/monitoring/rules_test.yaml")), &file))

	fires, quiet := words{}, words{}
	for _, test := range file.Tests {
		for _, q := range test.Queries {
			if q.Expr == `ALERTS{alertname="`+test.Name+`", alertstate="firing"}` {
				fires[test.Name] = fires[test.Name] || len(q.Samples) > 0
				quiet[test.Name] = quiet[test.Name] || len(q.Samples) == 0
			}
		}
	}

	for _, a := range alerts(t) {
		if !fires[a.Alert] || !quiet[a.Alert] {
			t.Errorf("test/monitoring/rules_test.yaml: %s fires: %v, does not fire: %v", a.Alert, fires[a.Alert], quiet[a.Alert])
		}
	}
}

// TestTheScrapeConfigurationSetsTheLabelsThatAlertsAndPanelsUse checks the labels job and instance, which the
// programs do not set themselves.
func TestTheScrapeConfigurationSetsTheLabelsThatAlertsAndPanelsUse(t *testing.T) {
	var file struct {
		ScrapeConfigs []struct {
			RelabelConfigs []struct {
				TargetLabel string `json:"target_label"`
			} `json:"relabel_configs"`
		} `json:"scrape_configs"`
	}

	must(t, yaml.Unmarshal([]byte(read(t, "deploy/monitoring/scrape.yaml")), &file))

	for _, job := range file.ScrapeConfigs {
		set := words{}
		for _, relabel := range job.RelabelConfigs {
			set[relabel.TargetLabel] = true
		}
		if !set["job"] || !set["instance"] {
			t.Errorf("a job sets only the labels %v", set)
		}
	}

	if len(file.ScrapeConfigs) == 0 {
		t.Error("there are no jobs")
	}
}
