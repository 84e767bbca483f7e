// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iocgroup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCountersOfDevicesAreRead has a device 8:16 without counters, whose line lacks the newline. The counters of a
// device without a number are skipped.
func TestCountersOfDevicesAreRead(t *testing.T) {
	const text = "8:16 8:0 rbytes=4096 rios=1 cost.usage=x\n(unknown) rbytes=70000\n9:0 wios=3\n"
	want := map[Device]map[string]uint64{{Major: 8}: {"rbytes": 4096, "rios": 1}, {Major: 9}: {"wios": 3}}
	got := map[Device]map[string]uint64{}
	ParseStat([]byte(text), func(dev Device, key string, value uint64) {
		if got[dev] == nil {
			got[dev] = map[string]uint64{}
		}
		got[dev][key] = value
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
