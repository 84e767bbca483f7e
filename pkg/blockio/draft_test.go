// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// TestADraftedClassPromisesItsBounds applies a draft, and compares what the class promises with what was asked for.
func TestADraftedClassPromisesItsBounds(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope)
	wrote, read := classes.Series{Measure: writeBytes, Part: "sda"}, classes.Series{Measure: reads, Part: "sdb"}
	bounds := []classes.Bound{{Use: wrote, Value: 12.5e6}, {Use: read, Value: 7.2}, {Use: classes.Series{Measure: "memory_bytes"}, Value: 1}}
	section, err := json.Marshal(f.backend.Draft("new", bounds))
	if err != nil {
		t.Fatal(err)
	}
	f.apply(string(section))

	promised := map[classes.Series]float64{}
	for _, p := range f.backend.Promises(container(), "new") {
		promised[p.Use] = p.Bound
	}
	if diff := cmp.Diff(map[classes.Series]float64{wrote: 12.5e6, read: 8}, promised); diff != "" {
		t.Errorf("promises of %s (-want +got):\n%s", section, diff)
	}
	if got := f.backend.Draft("new", bounds[2:]); got != nil {
		t.Errorf("a class without limits is drafted: %v", got)
	}
}
