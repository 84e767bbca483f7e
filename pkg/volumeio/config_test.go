// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

func TestMistakesInVolumeClassesAreReported(t *testing.T) {
	section := "classes:\n  a: {maxReadBps: 1, maxWriteIops: x, sharedDisk: maybe}\n  b: {}\n  c: {maxReads: 5}\nunknown: 1\n"
	_, err := classes.ParseSection(classes.File{Data: []byte(section)}, ParseConfig)
	var got []string
	for _, problem := range classes.SplitErrors(err) {
		got = append(got, problem.Error())
	}
	text := strings.Join(got, "\n")
	wants := []string{
		`"1" is too small; the minimum is 2`, `"x" is not a quantity`, `"maybe" is neither refuse nor limit`, `classes.b: sets no limit`, `classes.c: sets no limit`, `maxReads`, `unknown`,
	}
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("no problem %q in:\n%s", want, text)
		}
	}
	if len(got) != len(wants) {
		t.Errorf("%d problems are reported, want %d:\n%s", len(got), len(wants), text)
	}
}
