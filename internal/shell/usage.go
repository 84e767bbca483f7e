// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// usageColumn is a column of usage tables.
type usageColumn struct {
	measure, header string
	// sort is the name of the column for --sort-by.
	sort   string
	format func(float64) string
}

// usageColumns returns the known columns in their order. The values of cumulative measures are shown per second.
func usageColumns() []usageColumn {
	return []usageColumn{
		{"llc_occupancy_bytes", "CACHE", "cache", bytesText},
		{"memory_bandwidth_bytes_total", "MEMORY/s", "memory", bytesText},
		{"memory_bandwidth_local_bytes_total", "LOCAL/s", "local", bytesText},
		{"fs_reads_bytes_total", "READ/s", "read", bytesText},
		{"fs_writes_bytes_total", "WRITTEN/s", "written", bytesText},
		{"fs_reads_total", "READS/s", "reads", numberText},
		{"fs_writes_total", "WRITES/s", "writes", numberText},
		{"pressure_io_waiting_seconds_total", "WAITING", "waiting", percentText},
		{"pressure_io_stalled_seconds_total", "STALLED", "stalled", percentText},
	}
}

// UsageOrders returns the values of --sort-by.
func UsageOrders() (orders []string) {
	for _, c := range usageColumns() {
		orders = append(orders, c.sort)
	}
	return orders
}

// UsageView selects what a usage table shows.
type UsageView struct {
	// Containers adds a table of containers and pods.
	Containers bool
	// SortBy is one of UsageOrders, or empty for the order of the names.
	SortBy string
}

// Usage formats the usage between two messages.
func Usage(before, now *qosv1alpha1.WatchUsageResponse, view UsageView) string {
	took := now.GetTime().AsTime().Sub(before.GetTime().AsTime())
	byResource := map[string]*usageTable{}
	tableOf := func(resource string, names ...string) *usageTable {
		if byResource[resource] == nil {
			byResource[resource] = &usageTable{names: names}
		}
		return byResource[resource]
	}

	earlier := valuesByID(before)
	for _, c := range now.GetClasses() {
		tableOf("1 "+c.GetResource(), "RESOURCE", "CLASS").add(earlier[idOfClass(c)], c.GetMeasurements(), took, c.GetResource(), classText(c.GetClass()))
	}
	for _, c := range now.GetContainers() {
		if view.Containers {
			tableOf("2 "+c.GetResource(), "RESOURCE", "NAMESPACE", "POD", "CONTAINER", "CLASS").add(earlier[idOfContainer(c)], c.GetMeasurements(), took,
				c.GetResource(), c.GetNamespace(), c.GetPod(), containerText(c.GetContainer()), classText(c.GetClass()))
		}
	}

	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(byResource)) {
		byResource[name].table(view.SortBy).appendTo(&text)
	}
	if text.Len() == 0 {
		return "Nothing is measured on this node: no resource is available, or the machine cannot measure.\n"
	}
	return text.String()
}

func idOfClass(c *qosv1alpha1.ClassUsage) string { return c.GetResource() + "=" + c.GetClass() }

func idOfContainer(c *qosv1alpha1.ContainerUsage) string { return c.GetResource() + " " + c.GetId() }

// series identifies the values of one measure for one disk or cache.
type series struct{ measure, part string }

func valuesByID(message *qosv1alpha1.WatchUsageResponse) map[string]map[series]float64 {
	all := map[string]map[series]float64{}
	for _, c := range message.GetClasses() {
		all[idOfClass(c)] = valuesOf(c.GetMeasurements())
	}
	for _, c := range message.GetContainers() {
		all[idOfContainer(c)] = valuesOf(c.GetMeasurements())
	}
	return all
}

func valuesOf(measurements []*qosv1alpha1.Measurement) map[series]float64 {
	values := map[series]float64{}
	for _, m := range measurements {
		values[series{m.GetName(), m.GetPart()}] = m.GetValue()
	}
	return values
}

// usageTable has a row for each part of each class or container.
type usageTable struct {
	names []string
	rows  []usageRow
}

type usageRow struct {
	names []string
	part  string
	// values has the value of each measure, or its growth per second if it is cumulative.
	values map[string]float64
}

func (t *usageTable) add(before map[series]float64, now []*qosv1alpha1.Measurement, took time.Duration, names ...string) {
	rows := map[string]usageRow{}
	for _, m := range now {
		row, exists := rows[m.GetPart()]
		if !exists {
			row = usageRow{names: names, part: m.GetPart(), values: map[string]float64{}}
			rows[m.GetPart()] = row
		}

		value := m.GetValue()
		if strings.HasSuffix(m.GetName(), "_total") {
			earlier, counted := before[series{m.GetName(), m.GetPart()}]
			value = (value - earlier) / took.Seconds()
			if !counted || value < 0 || took <= 0 {
				continue // a new series, or a plugin that has started again
			}
		}
		row.values[m.GetName()] = value
	}
	for _, part := range slices.Sorted(maps.Keys(rows)) {
		t.rows = append(t.rows, rows[part])
	}
}

// table returns the rows with the columns that have values.
func (t *usageTable) table(sortBy string) table {
	columns := t.columns()
	for _, c := range columns {
		if c.sort == sortBy {
			slices.SortStableFunc(t.rows, func(a, b usageRow) int { return cmp.Compare(b.values[c.measure], a.values[c.measure]) })
		}
	}

	header := append(slices.Clone(t.names), "PART")
	for _, c := range columns {
		header = append(header, c.header)
	}
	rows := table{header}
	for _, r := range t.rows {
		cells := append(slices.Clone(r.names), cmp.Or(r.part, "-"))
		for _, c := range columns {
			cell := "-"
			if value, has := r.values[c.measure]; has {
				cell = c.format(value)
			}
			cells = append(cells, cell)
		}
		rows = append(rows, cells)
	}
	return rows
}

// columns returns the columns that have values: first the known columns, then the other measures, sorted by name.
func (t *usageTable) columns() []usageColumn {
	measured := map[string]bool{}
	for _, r := range t.rows {
		for measure := range r.values {
			measured[measure] = true
		}
	}

	columns := slices.DeleteFunc(usageColumns(), func(c usageColumn) bool { return !measured[c.measure] })
	for _, c := range columns {
		delete(measured, c.measure)
	}
	for _, measure := range slices.Sorted(maps.Keys(measured)) {
		header, format := strings.ToUpper(measure), numberText
		if growing, cumulative := strings.CutSuffix(header, "_TOTAL"); cumulative {
			header = growing + "/s"
		}
		if strings.Contains(measure, "_bytes") {
			format = bytesText
		}
		columns = append(columns, usageColumn{measure: measure, header: header, format: format})
	}
	return columns
}

// bytesText formats bytes as kubectl does, e.g. "12Mi", with a decimal if the number has one digit.
func bytesText(bytes float64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi"}
	unit := 0
	for bytes >= 1023.5 && unit < len(units)-1 {
		bytes /= 1024
		unit++
	}
	if unit > 0 && bytes < 9.95 {
		return fmt.Sprintf("%.1f%s", bytes, units[unit])
	}
	return fmt.Sprintf("%.0f%s", bytes, units[unit])
}

func numberText(n float64) string {
	if n > 0 && n < 9.95 {
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}

func percentText(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }
