// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// TestBandwidthThatTheMachineCannotSetIsRefusedOrReported checks and applies values in another unit, and values below
// the resolution. A refusal is one line, and changes nothing.
func TestBandwidthThatTheMachineCannotSetIsRefusedOrReported(t *testing.T) {
	mbps := sim.IntelSpec()
	mbps.Options = "mba_MBps"
	of := func(values string) string {
		return `{partitions: {p: {l3Allocation: "100%", mbAllocation: ["100%", "100000MBps"], classes: {a: {mbAllocation: ` + values + `}}}}}`
	}
	only := func(values string) string {
		return `{partitions: {p: {mbAllocation: ` + values + `, classes: {a: {}}}}}`
	}
	for name, test := range map[string]struct {
		spec       sim.Spec
		text, want string // the error, or the message of the condition BandwidthExact
	}{
		"MBps where only per cent exist": {sim.IntelSpec(), only(`["1000MBps"]`),
			"resctrl is mounted without mba_MBps, but the configuration has memory bandwidth in MBps only (partition \"p\"); also give it in per cent, or mount resctrl with -o mba_MBps, which only CPUs of Intel have"},
		"MBps on Arm": {sim.ArmSpec(8), only(`["1000MBps"]`),
			"resctrl is mounted without mba_MBps, but the configuration has memory bandwidth in MBps only (partition \"p\"); also give it in per cent, or mount resctrl with -o mba_MBps, which only CPUs of Intel have"},
		"per cent where only MBps exist": {mbps, only(`["50%"]`),
			"resctrl is mounted with mba_MBps, but the configuration has memory bandwidth in per cent only (partition \"p\"); also give it in MBps, or mount resctrl without mba_MBps"},
		"per cent below the resolution":           {sim.IntelSpec(), of(`["3%"]`), "the kernel rounds memory bandwidth: a has 0=10;1=10 for 0=3;1=3"},
		"per cent below the resolution, on Arm":   {sim.ArmSpec(5), of(`["2%"]`), "the kernel rounds memory bandwidth: a has 0=3;1=3 for 0=2;1=2"},
		"between two steps":                       {sim.IntelSpec(), of(`["55%"]`), "the kernel rounds memory bandwidth: a has 0=60;1=60 for 0=55;1=55"},
		"less than 1/8 GB/s is the smallest step": {sim.AMDSpec(), of(`["3MBps"]`), ""}, // the plugin rounds it, not the kernel
	} {
		t.Run(name, func(t *testing.T) {
			fsys := sim.New(test.spec)
			b, before := newBackend(fsys, nil), fsys.Dump()
			preview, err := b.Preview(t.Context(), parse(t, test.text))
			if err != nil {
				unavailable := (*classes.Unavailable)(nil)
				if !errors.As(err, &unavailable) || err.Error() != test.want {
					t.Errorf("check: %v\nwant: %s", err, test.want)
				}
				if err := b.Apply(t.Context(), parse(t, test.text)); err == nil {
					t.Error("apply: no error")
				}
				if diff := cmp.Diff(before, fsys.Dump()); diff != "" {
					t.Errorf("the refused configuration has changed something: %s", diff)
				}
				return
			}
			must(t, b.Apply(t.Context(), parse(t, test.text)))
			for from, status := range map[string]classes.BackendStatus{"check": preview, "status": b.Status()} {
				condition := conditionOf(status, ConditionBandwidth)
				if condition.Message != test.want || condition.Limited != (test.want != "") {
					t.Errorf("%s: %+v, want a line that check prints: %q", from, condition, test.want)
				}
			}
		})
	}
}

// TestUnknownMountOptionsAreReportedAndIgnored has mount options of a newer kernel. mba_MBps_event must not be taken for the known
// option mba_MBps, which changes the unit of memory bandwidth.
func TestUnknownMountOptionsAreReportedAndIgnored(t *testing.T) {
	b := newBackend(altered{sim.New(sim.IntelSpec()), func(_ string, data []byte, err error) ([]byte, error) {
		return bytes.ReplaceAll(data, []byte("resctrl rw"), []byte("resctrl rw,debug,kernel_mode=2,mba_MBps_event")), err
	}}, nil)
	apply(t, b, twoPartitions)
	wantNoDrift(t, b)
	if got := conditionOf(b.Status(), ConditionMounted).Message; !strings.Contains(got, "kernel_mode=2") {
		t.Errorf("the condition is %q", got)
	}
	if got := b.Schemata()["bronze"]; !strings.HasSuffix(got, "MB:0=40;1=40\n") {
		t.Errorf("the class has %q, want bandwidth in per cent", got)
	}
}
