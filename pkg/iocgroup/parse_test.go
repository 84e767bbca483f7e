// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iocgroup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func limitsOf(major, minor uint32) Setting { return Setting{Device: Device{major, minor}} }

func TestKernelFilesAreRead(t *testing.T) {
	for _, test := range []struct {
		Name   string
		Layout Layout
		File   string
		Data   string
		want   Values
	}{
		{"io.max in any order", Unified{}, IOMax, "8:16 wiops=7 rbps=5 riops=max wbps=max\n8:0 rbps=max wbps=max riops=max wiops=9\n",
			Values{limitsOf(8, 16): {ReadBPS: 5, WriteIOPS: 7}, limitsOf(8, 0): {WriteIOPS: 9}}},
		{"io.max with keys of a later kernel", Unified{}, IOMax, "8:0 tbps=7 rbps=5\n", Values{limitsOf(8, 0): {ReadBPS: 5}}},
		{"io.max without limits", Unified{}, IOMax, "8:0 rbps=max wbps=max riops=max wiops=max\n", Values{}},
		{"weights of a file and of devices", Unified{}, "io.weight", "default 100\n8:0 200\n",
			Values{{File: IOWeight}: {100}, {IOWeight, Device{8, 0}}: {200}}},
		{"latency targets, with keys of a later kernel", Unified{}, "io.latency", "8:16 target=10000\n8:0 low=1 target=7\n",
			Values{{IOLatency, Device{8, 16}}: {10000}, {IOLatency, Device{8, 0}}: {7}}},
		{"bfq weights before Linux 5.4", Unified{}, "io.bfq.weight", "300\n", Values{{File: IOBFQWeight}: {300}}},
		{"weights of devices in v1", Legacy{}, "blkio.bfq.weight_device", "default 100\n8:0 200\n",
			Values{{File: BlkioBFQWeight}: {100}, {BlkioBFQWeight, Device{8, 0}}: {200}}},
		{"limits in v1", Legacy{}, "blkio.throttle.write_iops_device", "8:16 2000\n8:0 5\n",
			Values{limitsOf(8, 16): {WriteIOPS: 2000}, limitsOf(8, 0): {WriteIOPS: 5}}},
	} {
		t.Run(test.Name, func(t *testing.T) {
			got := Values{}
			if err := test.Layout.Parse(got, test.File, []byte(test.Data)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(Setting{}, Device{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMalformedKernelFilesAreErrors(t *testing.T) {
	for _, test := range []struct {
		Layout     Layout
		File, Data string
	}{
		{Unified{}, IOMax, "sda rbps=5"}, {Unified{}, IOMax, "8:0 rbps=x"}, {Unified{}, IOMax, "8:0 rbps=-1"}, {Unified{}, IOMax, "8:x rbps=5"},
		{Unified{}, IOMax, "4294967296:0 rbps=5"}, {Unified{}, IOMax, "8:4294967296 rbps=5"},
		{Unified{}, "io.latency", "8:0 target=max"}, {Unified{}, "io.latency", "sda target=5"},
		{Unified{}, "io.weight", "default"}, {Unified{}, "io.weight", "sda 5"}, {Unified{}, "io.weight", "8:0 5 6"},
		{Legacy{}, "blkio.throttle.read_bps_device", "8:0"}, {Legacy{}, "blkio.throttle.read_bps_device", "8:0 x"},
		{Legacy{}, "blkio.throttle.read_bps_device", "sda 5"}, {Legacy{}, "blkio.bfq.weight", "x"},
	} {
		if err := test.Layout.Parse(Values{}, test.File, []byte(test.Data)); err == nil {
			t.Errorf("%s: %q is accepted", test.File, test.Data)
		}
	}
}

// TestTheActiveSchedulerOfADiskIsRead: it is in brackets, unless the disk has only one.
func TestTheActiveSchedulerOfADiskIsRead(t *testing.T) {
	for text, want := range map[string]string{
		"[none] mq-deadline kyber bfq \n": "none", "none mq-deadline kyber [bfq] \n": "bfq", "none\n": "none", "": "", "a b\n": "",
	} {
		if got, _ := parseScheduler([]byte(text)); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// FuzzState parses cgroup files to a state, and generates the writes that set this state. It checks that these writes,
// when parsed, give the same state again.
func FuzzState(f *testing.F) {
	f.Add("8:0 rbps=5 wbps=max riops=max wiops=7\n8:16 rbps=1\n", "default 100\n8:0 200\n", "default 300\n", "8:0 target=10000\n")
	f.Add("", "77", "", "8:16 target=0")
	f.Add("4294967295:0 rbps=18446744073709551615", "default 1\ndefault 2", "8:0 1", "")
	f.Fuzz(func(t *testing.T, limits, cost, bfq, latency string) {
		state := Values{}
		for file, data := range map[string]string{IOMax: limits, "io.weight": cost, "io.bfq.weight": bfq, "io.latency": latency} {
			if err := (Unified{}).Parse(state, file, []byte(data)); err != nil {
				return
			}
		}

		again := Values{}
		for _, write := range (Unified{}).Writes(state) {
			if err := (Unified{}).Parse(again, write.File, []byte(write.Data)); err != nil {
				t.Logf("skipped, because a weight of 0 is written as \"default\", which the parser refuses: %v", err)
				return
			}
		}

		if rest := state.Remaining(again); len(rest) > 0 {
			t.Errorf("the writes of a state lack these values: %+v", rest)
		}
	})
}

func FuzzLegacyFiles(f *testing.F) {
	f.Add("8:0 5\n8:16 18446744073709551615\n", "100", "default 100\n8:0 200\n")
	f.Add("Total 0", "", "")
	f.Fuzz(func(_ *testing.T, limits, weight, devices string) {
		state := Values{}
		_ = Legacy{}.Parse(state, "blkio.throttle.read_bps_device", []byte(limits))
		_ = Legacy{}.Parse(state, "blkio.bfq.weight", []byte(weight))
		_ = Legacy{}.Parse(state, "blkio.bfq.weight_device", []byte(devices))
		Legacy{}.Writes(state)
	})
}

func FuzzMachineFiles(f *testing.F) {
	f.Add("[none] bfq", "8:0 enable=1 ctrl=auto\n")
	f.Fuzz(func(_ *testing.T, scheduler, cost string) {
		parseScheduler([]byte(scheduler))
		_, _ = parseCosts([]byte(cost))
	})
}
