// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"strings"
	"testing"
)

// unknownFields is a class file with an unknown field in each place, so that the messages list the known fields.
const unknownFields = `apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  unknown: 1
  classes: [{name: a, unknown: 1}]
  rdt: {unknown: 1, partitions: {p: {unknown: 1, l3Allocation: "100%", classes: {a: {unknown: 1}}}}, options: {unknown: 1, l3: {unknown: 1}}}
- name: k8s.io/blockio
  blockio: {unknown: 1, Classes: {a: [{unknown: 1}]}}
- name: vendor.example/volumes
  scope: volume
  volumeio: {unknown: 1, classes: {a: {unknown: 1}}}
`

// TestFieldsOfClassFilesAreDocumented looks up each field that class files can have in the page of its section.
func TestFieldsOfClassFilesAreDocumented(t *testing.T) {
	problems := parsed(t, unknownFields).Err
	if problems == nil {
		t.Fatal("unknown fields are accepted")
	}

	found := regexp.MustCompile(`(\S+)\.unknown: unknown field; the known fields are (.*)`).FindAllStringSubmatch(problems.Error(), -1)
	if want := strings.Count(unknownFields, "unknown:"); len(found) != want {
		t.Errorf("want a problem for each of %d unknown fields, and the problems are:\n%v", want, problems)
	}

	for _, place := range found {
		name := "docs/class-files.md"
		for section, page := range map[string]string{".rdt": "docs/rdt.md", ".blockio": "docs/blockio.md", ".volumeio": "docs/volumes.md"} {
			if strings.Contains(place[1], section) {
				name = page
			}
		}
		page := read(t, name)
		for field := range strings.SplitSeq(place[2], ", ") {
			if !regexp.MustCompile(`\b` + field + `\b`).MatchString(page) {
				t.Errorf("%s does not have the field %s of %s", name, field, place[1])
			}
		}
	}
}
