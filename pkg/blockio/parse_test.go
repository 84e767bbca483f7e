// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func limitsOf(major, minor uint32) setting { return setting{device: device{major, minor}} }

func TestKernelFilesAreRead(t *testing.T) {
	for _, test := range []struct {
		name   string
		layout layout
		file   string
		data   string
		want   values
	}{
		{"io.max in any order", unified{}, ioMax, "8:16 wiops=7 rbps=5 riops=max wbps=max\n8:0 rbps=max wbps=max riops=max wiops=9\n",
			values{limitsOf(8, 16): {readBps: 5, writeIOPS: 7}, limitsOf(8, 0): {writeIOPS: 9}}},
		{"io.max with keys of a later kernel", unified{}, ioMax, "8:0 rbps=5 tbps=7\n", values{limitsOf(8, 0): {readBps: 5}}},
		{"io.max without limits", unified{}, ioMax, "8:0 rbps=max wbps=max riops=max wiops=max\n", values{}},
		{"weights of a file and of devices", unified{}, "io.weight", "default 100\n8:0 200\n",
			values{{file: ioWeight}: {100}, {ioWeight, device{8, 0}}: {200}}},
		{"bfq weights before Linux 5.4", unified{}, "io.bfq.weight", "300\n", values{{file: ioBFQWeight}: {300}}},
		{"weights of devices in v1", legacy{}, "blkio.bfq.weight_device", "default 100\n8:0 200\n",
			values{{file: blkioBFQWeight}: {100}, {blkioBFQWeight, device{8, 0}}: {200}}},
		{"limits in v1", legacy{}, "blkio.throttle.write_iops_device", "8:16 2000\n8:0 5\n",
			values{limitsOf(8, 16): {writeIOPS: 2000}, limitsOf(8, 0): {writeIOPS: 5}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := values{}
			if err := test.layout.parse(got, test.file, []byte(test.data)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(setting{}, device{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestGarbageInKernelFilesIsAnError(t *testing.T) {
	for _, test := range []struct {
		layout     layout
		file, data string
	}{
		{unified{}, ioMax, "sda rbps=5"}, {unified{}, ioMax, "8:0 rbps=x"}, {unified{}, ioMax, "8:0 rbps=-1"}, {unified{}, ioMax, "8:x rbps=5"},
		{unified{}, "io.weight", "default"}, {unified{}, "io.weight", "sda 5"}, {unified{}, "io.weight", "8:0 5 6"},
		{legacy{}, "blkio.throttle.read_bps_device", "8:0"}, {legacy{}, "blkio.throttle.read_bps_device", "8:0 x"},
		{legacy{}, "blkio.throttle.read_bps_device", "sda 5"}, {legacy{}, "blkio.bfq.weight", "x"},
	} {
		if err := test.layout.parse(values{}, test.file, []byte(test.data)); err == nil {
			t.Errorf("%s: %q is accepted", test.file, test.data)
		}
	}
}

func TestSchedulers(t *testing.T) {
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
	f.Add("8:0 rbps=5 wbps=max riops=max wiops=7\n8:16 rbps=1\n", "default 100\n8:0 200\n", "default 300\n")
	f.Add("", "77", "")
	f.Add("4294967295:0 rbps=18446744073709551615", "default 1\ndefault 2", "8:0 1")
	f.Fuzz(func(t *testing.T, limits, cost, bfq string) {
		state := values{}
		for file, data := range map[string]string{ioMax: limits, "io.weight": cost, "io.bfq.weight": bfq} {
			if err := (unified{}).parse(state, file, []byte(data)); err != nil {
				return
			}
		}

		again := values{}
		for _, write := range (unified{}).writes(state) {
			if err := (unified{}).parse(again, write.file, []byte(write.data)); err != nil {
				t.Logf("skipped, because a weight of 0 is written as \"default\", which the parser refuses: %v", err)
				return
			}
		}

		if rest := state.remaining(again); len(rest) > 0 {
			t.Errorf("the writes of a state lack these values: %+v", rest)
		}
	})
}

func FuzzLegacyFiles(f *testing.F) {
	f.Add("8:0 5\n8:16 18446744073709551615\n", "100", "default 100\n8:0 200\n")
	f.Add("Total 0", "", "")
	f.Fuzz(func(_ *testing.T, limits, weight, devices string) {
		state := values{}
		_ = legacy{}.parse(state, "blkio.throttle.read_bps_device", []byte(limits))
		_ = legacy{}.parse(state, "blkio.bfq.weight", []byte(weight))
		_ = legacy{}.parse(state, "blkio.bfq.weight_device", []byte(devices))
		legacy{}.writes(state)
	})
}

func FuzzMachineFiles(f *testing.F) {
	f.Add("[none] bfq", "8:0 enable=1 ctrl=auto\n")
	f.Fuzz(func(_ *testing.T, scheduler, cost string) {
		parseScheduler([]byte(scheduler))
		_, _ = parseCostQoS([]byte(cost))
	})
}
