// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Series is a line of a chart.
type Series struct {
	Name   string
	Points []Point
}

// Point is a value at a time. A point whose value is NaN is not drawn.
type Point struct {
	Time  time.Time
	Value float64
}

// Sizes in the picture, in pixels.
const (
	columnWidth = 44 // of one of the 24 columns
	rowHeight   = 22 // of one row of the grid
	padding     = 10
	head        = 24 // of a panel, for its title
	legendLine  = 14
	legendLines = 4 // at most, of a panel
)

// SVG returns a picture of the dashboard. `data` has the series of each panel, by the panel's title. All charts show the same time.
func (d *Dashboard) SVG(data map[string][]Series) string {
	var times []time.Time
	for _, series := range data {
		for _, s := range series {
			for _, p := range s.Points {
				times = append(times, p.Time)
			}
		}
	}

	c, height := canvas{}, 0
	if len(times) > 0 {
		c.from, c.to = slices.MinFunc(times, time.Time.Compare), slices.MaxFunc(times, time.Time.Compare)
	}
	for _, p := range d.Panels {
		height = max(height, rowHeight*(p.GridPos.Y+p.GridPos.H))
		c.panel(p, data[p.Title])
	}

	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" `+
		`font-family="system-ui, sans-serif" font-size="11">`+"\n<title>The dashboard</title>\n"+
		`<rect width="%[1]d" height="%[2]d" fill="#eef1f4"/>`+"\n%[3]s</svg>\n", 24*columnWidth, height, c.text.String())
}

// canvas has the parts of the picture that are drawn so far.
type canvas struct {
	text     strings.Builder
	from, to time.Time
}

func (c *canvas) draw(format string, args ...any) { fmt.Fprintf(&c.text, format+"\n", args...) }

func (c *canvas) write(x, y int, style, content string) {
	c.draw(`<text x="%d" y="%d" %s>%s</text>`, x, y, style, html.EscapeString(content))
}

func (c *canvas) panel(p Panel, series []Series) {
	x, y, width, height := columnWidth*p.GridPos.X, rowHeight*p.GridPos.Y, columnWidth*p.GridPos.W, rowHeight*p.GridPos.H
	if p.Type == "row" {
		c.write(x+padding, y+16, `font-weight="600" fill="#123"`, p.Title)
		return
	}
	c.draw(`<rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="#fff"/>`, x+3, y+3, width-6, height-6)
	c.write(x+padding, y+18, `font-weight="600" fill="#234"`, p.Title)
	if p.Type == "stat" {
		c.number(p, series, x+width/2, y+height-22)
		return
	}
	c.chart(p, series, x+padding, y+head, width-2*padding, height-head-padding)
}

// number draws the latest value of a panel. 0 is green, because these panels count problems.
func (c *canvas) number(p Panel, series []Series, x, y int) {
	text, color := "no data", "#889"
	if len(series) > 0 {
		if value := series[0].latest(); !math.IsNaN(value) {
			text, color = format(value, p.FieldConfig.Defaults.Unit), map[bool]string{true: "#2d8a4e", false: "#c0392b"}[value == 0]
		}
	}
	c.write(x, y, `font-size="26" text-anchor="middle" fill="`+color+`"`, text)
}

// chart draws the lines of a panel, and their names below. Lines with high values come first, and get a name while there is room.
func (c *canvas) chart(p Panel, series []Series, x, y, width, height int) {
	series = slices.SortedStableFunc(slices.Values(series), func(a, b Series) int { return cmp.Compare(b.highest(), a.highest()) })
	highest := 0.0
	for _, s := range series {
		highest = max(highest, s.highest())
	}
	top := max(highest, 1e-9)
	named := min(len(series), legendLines)
	plot := height - legendLine*legendLines

	for _, line := range []struct {
		y     int
		value float64
	}{{y + 8, highest}, {y + plot, 0}} {
		c.draw(`<path d="M%d %dh%d" stroke="#dde3e8"/>`, x+54, line.y, width-54)
		c.write(x+50, line.y+4, `text-anchor="end" fill="#678"`, format(line.value, p.FieldConfig.Defaults.Unit))
	}

	for i, s := range series {
		path, pen := "", "M"
		for _, point := range s.Points {
			if math.IsNaN(point.Value) {
				pen = "M" // the line has a gap
				continue
			}
			share := point.Time.Sub(c.from).Seconds() / max(c.to.Sub(c.from).Seconds(), 1)
			path += fmt.Sprintf("%s%.1f %.1f", pen, float64(x+54)+share*float64(width-54), float64(y+plot)-point.Value/top*float64(plot-8))
			pen = "L"
		}
		c.draw(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`, path, color(i))
	}

	for i, s := range series[:named] {
		name := s.Name
		if i == legendLines-1 && len(series) > legendLines {
			name = fmt.Sprintf("and %d more", len(series)-i)
		} else {
			c.draw(`<rect x="%d" y="%d" width="10" height="3" fill="%s"/>`, x, y+plot+legendLine*i+10, color(i))
		}
		c.write(x+15, y+plot+legendLine*(i+1), `fill="#345"`, name)
	}
}

func (s Series) highest() float64 {
	highest := 0.0
	for _, p := range s.Points {
		if !math.IsNaN(p.Value) {
			highest = max(highest, p.Value)
		}
	}
	return highest
}

func (s Series) latest() float64 {
	if len(s.Points) == 0 {
		return math.NaN()
	}
	return s.Points[len(s.Points)-1].Value
}

// format returns a value with its unit, which is one of Grafana's.
func format(value float64, unit string) string {
	suffix, known := map[string]string{"short": "", "none": "", "s": " s", "ops": "/s", "iops": "/s", "bytes": "B", "Bps": "B/s"}[unit]
	switch {
	case unit == "percentunit":
		return strconv.FormatFloat(100*value, 'g', 3, 64) + "%"
	case !known:
		suffix = " " + unit
	}

	for _, scale := range []struct {
		factor float64
		prefix string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}, {1e-3, "m"}} {
		if value >= scale.factor {
			return strconv.FormatFloat(value/scale.factor, 'g', 3, 64) + separated(scale.prefix, suffix)
		}
	}

	return strconv.FormatFloat(value, 'g', 3, 64) + separated("", suffix)
}

// separated returns a prefix and a unit, with a space before them.
func separated(prefix, suffix string) string {
	text := prefix + strings.TrimPrefix(suffix, " ")
	if text == "" || strings.HasPrefix(text, "/") {
		return text
	}
	return " " + text
}

func color(series int) string {
	colors := []string{"#3b78b5", "#c9553f", "#4f9a45", "#8b6bb8", "#c99a2e", "#4aa3a2", "#7a7f87"}
	return colors[series%len(colors)]
}
