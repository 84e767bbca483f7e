// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// column is a column of usage tables.
type column struct {
	measure, header string
	// sort is the name of the column for --sort-by.
	sort   string
	format func(float64) string
	// `what` precedes the part in the column PART, e.g. "package ". It is empty for caches and disks.
	what string
}

// knownColumns returns the known columns in their order. The values of cumulative measures are shown per second.
func knownColumns() []column {
	return []column{
		{"llc_occupancy_bytes", "CACHE", "cache", bytesText, ""},
		{"memory_bandwidth_bytes_total", "MEMORY/s", "memory", bytesText, ""},
		{"memory_bandwidth_local_bytes_total", "LOCAL/s", "local", bytesText, ""},
		{"memory_bandwidth_observed_seconds_total", "OBSERVED", "observed", percentText, ""},
		{"core_joules_total", "WATTS", "watts", wattsText, "package "},
		{"core_activity_farads_total", "FARADS/s", "activity", numberText, "package "},
		{"fs_reads_bytes_total", "READ/s", "read", bytesText, ""},
		{"fs_writes_bytes_total", "WRITTEN/s", "written", bytesText, ""},
		{"fs_reads_total", "READS/s", "reads", numberText, ""},
		{"fs_writes_total", "WRITES/s", "writes", numberText, ""},
		{"pressure_io_waiting_seconds_total", "WAITING", "waiting", percentText, ""},
		{"pressure_io_stalled_seconds_total", "STALLED", "stalled", percentText, ""},
	}
}

// Orders returns the values of --sort-by.
func Orders() (orders []string) {
	for _, c := range knownColumns() {
		orders = append(orders, c.sort)
	}
	return orders
}

// Measurement is a value of one measure. It has the same JSON form as qos.v1alpha1.Measurement.
type Measurement struct {
	Name string `json:"name"`
	// Part is the cache or the disk that has the value.
	Part  string  `json:"part,omitempty"`
	Value float64 `json:"value"`
}

// Item has the usage of a class, a container or a pod.
type Item struct {
	// Key identifies the item among the items of one moment.
	Key      string
	Resource string
	// Names are the first cells of the item's rows, and Header has the names of their columns. Items with equal names are added
	// up.
	Header, Names []string
	Measurements  []Measurement
	// Took is the time since the earlier moment.
	Took time.Duration
}

// Usage returns the tables of the usage between two moments, each with its header. The first tables show classes, one
// table for each resource. The next tables show containers, whose items have more names, again one for each resource.
// `sortBy` is one of Orders, or empty for the order of the items.
func Usage(before, now []Item, sortBy string) (all [][][]string) {
	earlier := map[string][]Measurement{}
	for _, item := range before {
		earlier[item.Key] = item.Measurements
	}

	byName := map[string]*table{}
	for _, item := range now {
		name := fmt.Sprint(len(item.Header), item.Resource)
		if byName[name] == nil {
			byName[name] = &table{header: item.Header, index: map[string]*row{}}
		}
		byName[name].add(earlier[item.Key], item.Measurements, item.Took, item.Names)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, byName[name].cells(sortBy))
	}
	return all
}

// table has a row for each part of each class or container, or of a group of classes.
type table struct {
	header []string
	rows   []*row
	// index has the rows by their names and part.
	index map[string]*row
}

type row struct {
	names []string
	part  string
	// values has the value of each measure. For a cumulative measure, it has the growth per second.
	values map[string]float64
}

// add adds the measurements of an item. Measurements with the same names and part are added up in one row.
func (t *table) add(before, now []Measurement, took time.Duration, names []string) {
	type series struct{ measure, part string }
	earlier := map[series]float64{}
	for _, m := range before {
		earlier[series{m.Name, m.Part}] = m.Value
	}

	now = slices.SortedStableFunc(slices.Values(now), func(a, b Measurement) int { return cmp.Compare(partOf(a), partOf(b)) })
	for _, m := range now {
		r := t.rowOf(names, partOf(m))
		value := m.Value
		if strings.HasSuffix(m.Name, "_total") {
			last, counted := earlier[series{m.Name, m.Part}]
			value = (value - last) / took.Seconds()
			if !counted || value < 0 || took <= 0 {
				continue // the series is new, or the plugin has restarted and counts from 0 again
			}
		}
		r.values[m.Name] += value
	}
}

// partOf returns what the column PART shows for a measurement. A package and a cache with the same number are
// different parts.
func partOf(m Measurement) string {
	for _, c := range knownColumns() {
		if c.measure == m.Name {
			return c.what + m.Part
		}
	}
	return m.Part
}

// rowOf returns the row with these names and this part, and adds it to the table if it is missing.
func (t *table) rowOf(names []string, part string) *row {
	key := strings.Join(append(slices.Clone(names), part), "\x00")
	if t.index[key] == nil {
		t.index[key] = &row{names: names, part: part, values: map[string]float64{}}
		t.rows = append(t.rows, t.index[key])
	}
	return t.index[key]
}

// cells returns the header and the rows. The column PART and a column for each measure with values follow the names.
func (t *table) cells(sortBy string) [][]string {
	columns := t.columns()
	for _, c := range columns {
		if c.sort == sortBy && sortBy != "" {
			slices.SortStableFunc(t.rows, func(a, b *row) int { return cmp.Compare(b.values[c.measure], a.values[c.measure]) })
		}
	}

	header := append(slices.Clone(t.header), "PART")
	for _, c := range columns {
		header = append(header, c.header)
	}
	all := [][]string{header}
	for _, r := range t.rows {
		cells := append(slices.Clone(r.names), cmp.Or(r.part, "-"))
		for _, c := range columns {
			cell := "-"
			if value, has := r.values[c.measure]; has {
				cell = c.format(value)
			}
			cells = append(cells, cell)
		}
		all = append(all, cells)
	}
	return all
}

// columns returns the columns that have values: first the known columns, then the other measures, sorted by name.
func (t *table) columns() []column {
	measured := map[string]bool{}
	for _, r := range t.rows {
		for measure := range r.values {
			measured[measure] = true
		}
	}

	columns := slices.DeleteFunc(knownColumns(), func(c column) bool { return !measured[c.measure] })
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
		columns = append(columns, column{measure: measure, header: header, format: format})
	}
	return columns
}

// bytesText formats bytes as kubectl does, e.g. "12Mi". A number below 10 with a unit has one decimal place, e.g.
// "1.5Gi".
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

// wattsText formats watts. A container that computes little needs only some thousandths.
func wattsText(watts float64) string {
	if watts < 0.9995 {
		return fmt.Sprintf("%.3f", watts)
	}
	return numberText(watts)
}

func percentText(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

// Decimal formats a number with a decimal prefix, as class files and Kubernetes write limits, e.g. "380M".
func Decimal(value float64) string {
	prefixes := []string{"", "k", "M", "G", "T", "P"}
	i := 0
	for ; value >= 999.5 && i < len(prefixes)-1; i++ {
		value /= 1000
	}
	return fmt.Sprintf("%.3g%s", value, prefixes[i])
}
