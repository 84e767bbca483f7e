// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	goresctrl "github.com/intel/goresctrl/pkg/blockio"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
)

func TestGoresctrlConfigurationIsAccepted(t *testing.T) {
	for name, section := range map[string]string{
		"as its documentation has it": "Classes:\n  low:\n  - Weight: 80\n  - Devices:\n    - /dev/sd[a-z]\n    ThrottleReadBps: 50M\n  high:\n  - Weight: 400\n",
		"with strings":                `{Classes: {low: [{Weight: "80"}], high: [{Weight: "400"}]}}`,
		"with small letters":          `{classes: {low: [{weight: 80}], high: [{Weight: 400, throttlereadbps: 1k, devices: [/dev/sda]}]}}`,
		"as JSON":                     `{"Classes": {"low": [{"Weight": "80"}], "high": []}}`,
		"with classes without effect": "Classes:\n  low:\n  high: []\n",
		"with all kinds of numbers": `
Classes:
  low: [{Devices: ["/dev/sda"], ThrottleReadBps: 10000000, ThrottleWriteBps: 64Ki, ThrottleReadIOPS: 1e3, ThrottleWriteIOPS: 0}]
  high: [{Devices: ["/dev/disk/by-id/*SSD*"], ThrottleReadBps: "1.5G", Weight: 1k}]`,
		"with anchors": "Classes:\n  low: &low\n  - Weight: 80\n  high: *low\n",
	} {
		t.Run(name, func(t *testing.T) {
			config, err := parseConfig(section)
			must(t, err)
			if diff := cmp.Diff([]string{"high", "low"}, config.ClassNames()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnEmptyConfigurationHasNoClasses(t *testing.T) {
	for _, section := range []string{"", "{}", "null", "Classes:", "# nothing"} {
		config, err := parseConfig(section)
		if err != nil || len(config.ClassNames()) != 0 {
			t.Errorf("%q is parsed as %v with the error %v, want no class", section, config, err)
		}
	}
}

func TestEveryProblemIsReportedWithItsLine(t *testing.T) {
	for _, test := range []struct {
		name, section string
		want          []string
	}{
		{"ranges", `
Classes:
  a:
  - Weight: 9
  - Weight: 1001
  - Weight: -400
  b:
  - Devices: [/dev/sda]
    ThrottleReadBps: -1
    ThrottleWriteBps: 10Q
    ThrottleReadIOPS: 4294967295
    ThrottleWriteIOPS: 99999999999999999999999
    Weight: heavy`, []string{
			`line 4: Classes.a[0].Weight: "9" is too small; the minimum is 10`,
			`line 5: Classes.a[1].Weight: "1001" is too large; the maximum is 1000`,
			`line 6: Classes.a[2].Weight: "-400" is too small; the minimum is 10`,
			`line 9: Classes.b[0].ThrottleReadBps: "-1" is too small; the minimum is 0, and 0 is unlimited`,
			`line 10: Classes.b[0].ThrottleWriteBps: "10Q" is not a quantity; write one like 500, 10M or 64Ki`,
			`line 11: Classes.b[0].ThrottleReadIOPS: "4294967295" is too large; the maximum is 4294967294, and 0 is unlimited`,
			`line 12: Classes.b[0].ThrottleWriteIOPS: "1e+23" is too large; the maximum is 4294967294, and 0 is unlimited`,
			`line 13: Classes.b[0].Weight: "heavy" is not a quantity; write one like 500, 10M or 64Ki`,
		}},
		{"bytes beyond 64 bits", "Classes: {a: [{Devices: [/dev/sda], ThrottleReadBps: 10E}]}", []string{
			`line 1: Classes.a[0].ThrottleReadBps: "10E" is too large; the maximum is 9223372036854775806, and 0 is unlimited`}},
		{"unknown fields", "Classes:\n  a:\n  - Wait: 80\n    Device: [/dev/sda]\nclass: {}\n", []string{
			`line 3: Classes.a[0].Wait: unknown field; the known fields are Devices, ThrottleReadBps, ThrottleWriteBps, ThrottleReadIOPS, ThrottleWriteIOPS, Weight, Latency`,
			`line 4: Classes.a[0].Device: unknown field (did you mean Devices?); the known fields are Devices, ThrottleReadBps, ThrottleWriteBps, ThrottleReadIOPS, ThrottleWriteIOPS, Weight, Latency`,
			`line 5: class: unknown field (did you mean Classes?); the known fields are Classes, Direct, CostModels`}},
		{"a field twice", "Classes:\n  a:\n  - Weight: 80\n    weight: 90\n", []string{`line 4: Classes.a[0].weight: is defined twice; the first is in line 3`}},
		{"a class twice", "Classes:\n  a: []\n  a: []\n", []string{`line 3: Classes.a: is defined twice; the first is in line 2`}},
		{"throttling without devices", "Classes:\n  a:\n  - ThrottleReadBps: 1M\n", []string{
			`line 3: Classes.a[0].ThrottleReadBps: throttles no device; list the devices in the field Devices`}},
		{"latencies", `
Classes:
  a:
  - Latency: 10ms
  b:
  - {Devices: [/dev/sda], Latency: 10}
  - {Devices: [/dev/sda], Latency: 900ns}
  - {Devices: [/dev/sda], Latency: -1ms}
  - {Devices: [/dev/sda], Latency: 11s}`, []string{
			`line 4: Classes.a[0].Latency: applies to no device; list the devices in the field Devices`,
			`line 6: Classes.b[0].Latency: "10" is not a time; write one like 10ms or 500us`,
			`line 7: Classes.b[1].Latency: "900ns" is too small; the minimum is 1µs`,
			`line 8: Classes.b[2].Latency: "-1ms" is too small; the minimum is 1µs`,
			`line 9: Classes.b[3].Latency: "11s" is too large; the maximum is 10s`,
		}},
		{"patterns", `{Classes: {a: [{Devices: ["/dev/sd[a", "sda"], Weight: 100}]}}`, []string{
			`line 1: Classes.a[0].Devices[0]: "/dev/sd[a" is not a file name pattern; write one like /dev/sd[a-z]`,
			`line 1: Classes.a[0].Devices[1]: "sda" is not an absolute path; write one like /dev/sd[a-z], or rootfs or ephemeral`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := parseConfig(test.section)
			var got []string
			for _, problem := range classes.SplitErrors(err) {
				if !errors.As(problem, new(*classes.FieldError)) {
					t.Errorf("the problem %q is a %T, want a *FieldError", problem, problem)
				}
				got = append(got, problem.Error())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestEveryFieldOfAClassOfGoresctrlIsAccepted(t *testing.T) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[goresctrl.DevicesParameters]()) {
		if _, err := parseConfig("Classes: {a: [{" + field.Name + ": }]}"); err != nil {
			t.Error(err)
		}
	}
}

func TestOtherYAMLIsRefused(t *testing.T) {
	for _, section := range []string{"Classes: [a]", "Classes: {a: 5}", "Classes: {a: [5]}", "[]", "7", "Classes: {a: [{Devices: /dev/sda}]}",
		"Classes: {a: [{Weight: [1]}]}", "\tx", "Classes: {a: [{Devices: [{a: b}]}]}"} {
		if config, err := parseConfig(section); err == nil {
			t.Errorf("%q is accepted as %v, want an error", section, config)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{throttling, everything, weighing, inline(ofSDA), "", "Classes: {a: [{Devices: [/dev/sda], ThrottleReadBps: 1e3}]}",
		"a: &a [*a]", "Classes: &c {a: *c}", "Classes: {a: [{<<: {Weight: 5}}]}"} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, section []byte) {
		config, err := parseConfig(string(section))
		if err != nil {
			for _, problem := range classes.SplitErrors(err) {
				var field *classes.FieldError
				if !errors.As(problem, &field) || field.Problem == "" || field.Line < 0 ||
					field.Line > strings.Count(string(section), "\n")+strings.Count(string(section), "\r")+2 {
					t.Errorf("the problem has no text, or a line outside of the file: %#v", problem)
				}
			}
			return
		}

		if names := config.ClassNames(); !slices.IsSorted(names) {
			t.Errorf("the names of the classes are not sorted: %q", names)
		}
	})
}

// TestASecondResourceOfTheSameScopeIsRefused: both resources would set the same files of a cgroup.
func TestASecondResourceOfTheSameScopeIsRefused(t *testing.T) {
	const head, own = "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n", "  blockio: {Classes: {slow: [{Weight: 100}]}}\n"
	for _, test := range []struct{ scopes, want string }{
		{"container pod", ""},
		{"container container", "a.yaml:7: resources[1].blockio: only one resource of container scope on a node can have this field; v.example/r0 at a.yaml:4 already has it"},
		{"pod pod", "a.yaml:9: resources[1].blockio: only one resource of pod scope on a node can have this field; v.example/r0 at a.yaml:4 already has it"},
	} {
		text := head
		for i, scope := range strings.Fields(test.scopes) {
			text += fmt.Sprintf("- name: v.example/r%d\n", i)
			if scope == "pod" {
				text += "  scope: pod\n"
			}
			text += own
		}
		got := ""
		if _, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte(text)}}, []classes.Kind{Kind(ioapply.New(ioapply.Options{}))}, nil); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.scopes, got, test.want)
		}
	}
}

func TestTheFieldDirectIsTrueOrFalse(t *testing.T) {
	for text, want := range map[string]string{
		"Direct: true": "", "Direct: false": "", "Direct: perhaps": `line 2: Direct: "perhaps" is neither true nor false`,
	} {
		config, err := parseConfig("Classes: {}\n" + text)
		switch {
		case want != "" && (err == nil || err.Error() != want):
			t.Errorf("%s: error is %v, want %s", text, err, want)
		case want == "" && (err != nil || config.(*Config).direct != (text == "Direct: true")):
			t.Errorf("%s results in %+v and the error %v", text, config, err)
		}
	}
}
