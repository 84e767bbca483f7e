// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

func TestCheckNamesTheFeaturesOfTheMachine(t *testing.T) {
	amd, intel, apart, mbps, monitoring := sim.AMDSpec(), sim.IntelSpec(), sim.IntelSpec(), sim.IntelSpec(), sim.IntelSpec()
	amd.Counters, amd.IOAlloc = 8, "disabled"
	intel.TelemetryRMIDs = 12
	apart.Options, mbps.Options = "cdp", "mba_MBps"
	monitoring.L2, monitoring.L3, monitoring.MB = nil, nil, nil
	for name, test := range map[string]struct {
		spec sim.Spec
		want string
	}{
		"AMD":                         {amd, "shares of caches, bandwidth in 1/8 GB/s, monitoring of containers, assignable counters, device traffic"},
		"Intel":                       {intel, "shares of caches, bandwidth in per cent, monitoring of containers, energy"},
		"CDP":                         {apart, "shares of caches, code and data apart, bandwidth in per cent, monitoring of containers"},
		"MBps":                        {mbps, "shares of caches, bandwidth in MBps, monitoring of containers"},
		"Arm":                         {sim.ArmSpec(8), "shares of caches, bandwidth in per cent, monitoring of containers"},
		"a CPU that can only monitor": {monitoring, "monitoring of containers"},
	} {
		t.Run(name, func(t *testing.T) {
			status, err := newBackend(sim.New(test.spec), nil).Preview(t.Context(), &Config{})
			must(t, err)
			var available []string
			for _, f := range status.Features {
				if f.Available {
					available = append(available, f.Name)
				}
				if f.Reason == "" || strings.Contains(f.Reason, "\n") {
					t.Errorf("%s: the reason is %q", f.Name, f.Reason)
				}
			}
			if diff := cmp.Diff(test.want, strings.Join(available, ", ")); diff != "" {
				t.Errorf("available features (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTheDocumentedFeaturesAreThoseOfCheck compares the names with the table in docs/rdt.md.
func TestTheDocumentedFeaturesAreThoseOfCheck(t *testing.T) {
	page, err := os.ReadFile("../../docs/rdt.md")
	must(t, err)
	_, table, _ := strings.Cut(string(page), "| Feature |")
	table, _, _ = strings.Cut(table, "\n\n")
	var documented, printed []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-zA-Z0-9/ ]+?)( \(.*?\))? \|`).FindAllStringSubmatch(table, -1) {
		documented = append(documented, row[1])
	}
	status, err := newBackend(sim.New(sim.IntelSpec()), nil).Preview(t.Context(), &Config{})
	must(t, err)
	for _, f := range status.Features {
		printed = append(printed, f.Name)
	}
	if diff := cmp.Diff(printed, documented); diff != "" {
		t.Errorf("features (-check +docs):\n%s", diff)
	}
}
