// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lab stores the results of experiments that measure the effect of classes, and shows the results as tables and pictures.
package lab

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Scene is one experiment: the same measurements in several situations.
type Scene struct {
	// Name is the base name of the files with the table and the picture, e.g. "neighbours-cgroup-v2".
	Name string `json:"name"`

	Title string `json:"title"`

	// Columns are the measurements, with their units, e.g. "p99 (ms)".
	Columns []string `json:"columns"`

	// Rows are the situations, in the order in which they were measured.
	Rows []Row `json:"rows"`
}

// Row has the values of one situation, e.g. of a container beside neighbours.
type Row struct {
	Name string `json:"name"`

	// Values has a value for each column. It is empty if the machine cannot run the situation.
	Values []float64 `json:"values,omitempty"`

	// Reason is the reason why the machine cannot run the situation.
	Reason string `json:"reason,omitempty"`
}

// Add adds a row.
func (s *Scene) Add(name string, values ...float64) {
	s.Rows = append(s.Rows, Row{Name: name, Values: values})
}

// CannotShow adds a row without values. The reason is one line.
func (s *Scene) CannotShow(name, reason string) {
	s.Rows = append(s.Rows, Row{Name: name, Reason: reason})
}

// measured returns the rows with values, and one line of text for each other row.
func (s *Scene) measured() (rows []Row, missing []string) {
	for _, r := range s.Rows {
		if r.Reason == "" {
			rows = append(rows, r)
		} else {
			missing = append(missing, r.Name+": this machine cannot show it: "+r.Reason)
		}
	}
	return rows, missing
}

// Value returns a value of the row with this name, or NaN if the scene does not have it.
func (s *Scene) Value(row, column string) float64 {
	c := slices.Index(s.Columns, column)
	for _, r := range s.Rows {
		if r.Name == row && c >= 0 && c < len(r.Values) {
			return r.Values[c]
		}
	}
	return math.NaN()
}

// Save writes the scene into a file of a directory, for Load.
func (s *Scene) Save(dir string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, s.Name+".json"), data, 0o644)
}

// Load reads all scenes in a directory, sorted by their names.
func Load(dir string) ([]Scene, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}

	var scenes []Scene
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var s Scene
		if err := json.Unmarshal(data, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		scenes = append(scenes, s)
	}

	slices.SortFunc(scenes, func(a, b Scene) int { return cmp.Compare(a.Name, b.Name) })
	return scenes, nil
}

// Write writes the table of each scene into DIR/NAME.md, and its picture into DIR/NAME.svg.
func Write(dir string, scenes []Scene) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, s := range scenes {
		if err := os.WriteFile(filepath.Join(dir, s.Name+".md"), []byte(s.Markdown()), 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, s.Name+".svg"), []byte(s.SVG()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Markdown returns the scene as a table.
func (s *Scene) Markdown() string {
	var b strings.Builder
	rows, missing := s.measured()
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(append([]string{s.Title}, s.Columns...))
	b.WriteString("|---|" + strings.Repeat("--:|", len(s.Columns)) + "\n")
	for _, r := range rows {
		cells := []string{r.Name}
		for _, v := range r.Values {
			cells = append(cells, number(v))
		}
		line(cells)
	}
	for _, m := range missing {
		b.WriteString("\n" + m + "\n")
	}
	return b.String()
}

// Text returns the scene for a terminal.
func (s *Scene) Text() string {
	rows, missing := s.measured()
	width := utf8.RuneCountInString(s.Title)
	for _, r := range rows {
		width = max(width, utf8.RuneCountInString(r.Name))
	}

	var b strings.Builder
	fmt.Fprintf(&b, "%-*s", width, s.Title)
	for _, c := range s.Columns {
		fmt.Fprintf(&b, "  %s", c)
	}

	b.WriteString("\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "%-*s", width, r.Name)
		for i, v := range r.Values {
			fmt.Fprintf(&b, "  %*s", utf8.RuneCountInString(s.Columns[i]), number(v))
		}
		b.WriteString("\n")
	}
	for _, m := range missing {
		b.WriteString(m + "\n")
	}

	return b.String()
}

// number returns a value with three digits, or with all digits before the decimal point if these are more.
func number(v float64) string {
	digits := 2
	for limit := 9.995; digits > 0 && math.Abs(v) >= limit; limit *= 10 {
		digits--
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}
