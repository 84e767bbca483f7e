// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package external_test

import (
	"slices"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/external"
)

// TestMistakesInTheClassFileOfAnExternalResourceAreNamed parses class files whose fields `classes`, `external` and `defaultClass`
// are right or wrong. Without a mistake, `want` is empty.
func TestMistakesInTheClassFileOfAnExternalResourceAreNamed(t *testing.T) {
	const head = "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n- name: vendor.example/xyz-qos\n"
	for _, test := range []struct{ name, text, want string }{
		{"a resource with classes", "  defaultClass: low\n  classes: [{name: high, capacity: 2}, {name: low}]\n  external: {}\n", ""},
		{"a resource without classes", "  external: {}\n", "a.yaml:5: resources[0].external: has no classes; " +
			"list the resource's classes in its field classes, e.g. classes: [{name: gold, capacity: 2}]"},
		{"an unknown field", "  classes: [{name: high}]\n  external: {plugin: xyz}\n", "a.yaml:6: resources[0].external.plugin: unknown field; the known fields are enforcerUser"},
		{"the user ID of the program that enforces the classes", "  classes: [{name: high, capacity: 2}, {name: low}]\n  external: {enforcerUser: 4242}\n", ""},
		{"a user that is not a number", "  classes: [{name: high}]\n  external: {enforcerUser: xyz}\n",
			"a.yaml:6: resources[0].external.enforcerUser: is not a user ID; write the number of the user that runs the program, e.g. 4242"},
		{"a default class with a capacity", "  defaultClass: high\n  classes: [{name: high, capacity: 2}]\n  external: {}\n",
			`a.yaml:5: resources[0].defaultClass: class "high" has capacity 2, but a default class must be unlimited, because containers without a request are never refused`},
	} {
		t.Run(test.name, func(t *testing.T) {
			config, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte(head + test.text)}}, []classes.Kind{external.Kind()}, nil)
			if test.want != "" {
				if err == nil || err.Error() != test.want {
					t.Errorf("got %v, want %s", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}

			want := []classes.Class{{Name: "high", Capacity: 2}, {Name: "low"}}
			if got := config.Resources[0]; !slices.Equal(got.Classes, want) || !got.Mutable || got.RuntimeHandlers != nil {
				t.Errorf("got %+v, want a mutable resource for all runtime handlers, with the classes %+v", got, want)
			}
		})
	}
}
