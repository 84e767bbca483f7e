// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"encoding/xml"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/test/dashboard"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

func TestAQueryIsForAllValuesOfTheVariables(t *testing.T) {
	target := dashboard.Target{Expr: `sum by (class) (rate(x_total{instance=~"$instance", class=~"$class"}[$__rate_interval]))`}
	const want = `sum by (class) (rate(x_total{instance=~".*", class=~".*"}[1m]))`
	if got := target.Query("1m"); got != want {
		t.Errorf("the query is %s, want %s", got, want)
	}
}

func TestALegendHasTheLabelsOfItsSeries(t *testing.T) {
	target := dashboard.Target{LegendFormat: "{{resource}} {{class}} read"}
	for want, labels := range map[string]map[string]string{
		"k8s.io/rdt gold read": {"resource": "k8s.io/rdt", "class": "gold"},
		"k8s.io/rdt read":      {"resource": "k8s.io/rdt"},
	} {
		if got := target.Legend(labels); got != want {
			t.Errorf("the legend is %q, want %q", got, want)
		}
	}
}

// TestThePictureOfTheDashboardHasAllPanels: a number of problems is red (#c0392b) if it is not 0. A legend has four lines, so of five series,
// the first three have a line each. The series with the highest value comes first.
func TestThePictureOfTheDashboardHasAllPanels(t *testing.T) {
	d := must.Get(dashboard.Read("../../deploy/monitoring/dashboard.json"))(t)

	start := time.Unix(1700000000, 0)
	at := func(seconds int, value float64) dashboard.Point {
		return dashboard.Point{Time: start.Add(time.Duration(seconds) * time.Second), Value: value}
	}

	picture := d.SVG(map[string][]dashboard.Series{
		"Degraded classes": {{Points: []dashboard.Point{at(0, 0), at(60, 2)}}},
		"Bytes read":       {{Name: "low", Points: []dashboard.Point{at(0, 1)}}, {Name: "<high>", Points: []dashboard.Point{at(0, 2.5e6), at(30, math.NaN()), at(60, 1e6)}}},
		"In use":           {{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}},
	})

	if err := xml.Unmarshal([]byte(picture), &struct{}{}); err != nil {
		t.Fatalf("%v in\n%s", err, picture)
	}

	want := []string{`fill="#c0392b">2<`, ">2.5 MB/s<", ">&lt;high&gt;<", ">and 2 more<", ">no data<"}
	for _, p := range d.Panels {
		want = append(want, ">"+strings.ReplaceAll(p.Title, "&", "&amp;")+"<")
	}

	for _, part := range want {
		if !strings.Contains(picture, part) {
			t.Errorf("the picture lacks %q", part)
		}
	}

	if high, low := strings.Index(picture, "&lt;high&gt;"), strings.Index(picture, ">low<"); high > low {
		t.Error("the series with the highest value does not come first")
	}

	if strings.Contains(picture, "NaN") {
		t.Error("a point without a value is drawn")
	}
}
