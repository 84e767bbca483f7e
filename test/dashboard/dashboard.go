// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dashboard reads the dashboard for Grafana, and draws its panels with data from Prometheus.
package dashboard

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Dashboard is the part of a Grafana dashboard that tests and pictures need.
type Dashboard struct {
	Panels []Panel `json:"panels"`

	Templating struct {
		// List has the variables of the dashboard.
		List []Variable `json:"list"`
	} `json:"templating"`
}

// Variable is a variable that queries can name, e.g. $class.
type Variable struct {
	Name string `json:"name"`

	// Query returns the possible values, e.g. label_values(qos_class_in_use, class).
	Query string `json:"query"`
}

// Panel is a chart, a number, or the heading of a row of panels.
type Panel struct {
	// Type is "timeseries", "stat" or "row".
	Type  string `json:"type"`
	Title string `json:"title"`

	// GridPos has the place of the panel in a grid of 24 columns.
	GridPos struct{ X, Y, W, H int } `json:"gridPos"`

	FieldConfig struct {
		Defaults struct {
			// Unit is the unit of the values, as Grafana names it, e.g. "Bps".
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`

	// Targets are the queries of the panel. A row has none.
	Targets []Target `json:"targets"`
}

// Target is a query in PromQL.
type Target struct {
	Expr string `json:"expr"`

	// LegendFormat is the name of each resulting series, with labels in double braces.
	LegendFormat string `json:"legendFormat"`
}

// Read reads a dashboard from a file.
func Read(file string) (*Dashboard, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var d Dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &d, nil
}

// Query returns the query for all values of the variables. Rates are over the given interval, e.g. "1m".
func (t Target) Query(rateInterval string) string {
	text := strings.ReplaceAll(t.Expr, "$__rate_interval", rateInterval)
	return regexp.MustCompile(`\$\w+`).ReplaceAllLiteralString(text, ".*")
}

// Legend returns the name of a series with these labels.
func (t Target) Legend(labels map[string]string) string {
	name := regexp.MustCompile(`\{\{\w+\}\}`).ReplaceAllStringFunc(t.LegendFormat, func(label string) string {
		return labels[strings.Trim(label, "{}")]
	})
	return strings.Join(strings.Fields(name), " ")
}
