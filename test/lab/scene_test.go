// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/test/lab"
)

func scene() lab.Scene {
	s := lab.Scene{Name: "disk", Title: "A reader & <neighbours>", Columns: []string{"p99 (ms)", "reads/s"}}
	s.Add("alone", 2.345, 401.6)
	s.Add("with neighbours", 45.67, 0)
	return s
}

func TestASceneIsATableWithThreeDigitsOfEachValue(t *testing.T) {
	s := scene()
	want := `| A reader & <neighbours> | p99 (ms) | reads/s |
|---|--:|--:|
| alone | 2.35 | 402 |
| with neighbours | 45.7 | 0.00 |
`

	if diff := cmp.Diff(want, s.Markdown()); diff != "" {
		t.Error(diff)
	}

	want = `A reader & <neighbours>  p99 (ms)  reads/s
alone                        2.35      402
with neighbours              45.7     0.00
`

	if diff := cmp.Diff(want, s.Text()); diff != "" {
		t.Error(diff)
	}
}

func TestAPictureIsXMLAndHasAllValues(t *testing.T) {
	s := scene()
	picture := s.SVG()
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, picture)
		}
	}

	const longestBar = `width="110"` // that of the largest value in a column
	for _, part := range []string{">alone<", ">with neighbours<", ">2.35<", ">402<", ">45.7<", longestBar} {
		if !strings.Contains(picture, part) {
			t.Errorf("no %q in\n%s", part, picture)
		}
	}
}

func TestScenesAreWrittenAsTheyWereSaved(t *testing.T) {
	dir, one := t.TempDir(), scene()
	other := lab.Scene{Name: "a", Title: "First", Columns: []string{"x"}}
	for _, s := range []lab.Scene{one, other} {
		if err := s.Save(dir); err != nil {
			t.Fatal(err)
		}
	}

	scenes, err := lab.Load(dir)
	if err != nil {
		t.Fatal(err)
	}

	// Scenes are in the order of their names.
	if diff := cmp.Diff([]lab.Scene{other, one}, scenes); diff != "" {
		t.Error(diff)
	}

	out := filepath.Join(dir, "out")
	if err := lab.Write(out, scenes); err != nil {
		t.Fatal(err)
	}

	for name, want := range map[string]string{"disk.md": one.Markdown(), "disk.svg": one.SVG(), "a.md": other.Markdown()} {
		if got, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
	}
}

func TestAValueIsFoundByRowAndColumn(t *testing.T) {
	s := scene()
	if got := s.Value("with neighbours", "p99 (ms)"); got != 45.67 {
		t.Errorf("got %v", got)
	}
	for _, missing := range [][2]string{{"nowhere", "p99 (ms)"}, {"alone", "p50"}} {
		if got := s.Value(missing[0], missing[1]); !math.IsNaN(got) {
			t.Errorf("%q: got %v", missing, got)
		}
	}
}
