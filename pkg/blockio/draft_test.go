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

// TestADraftedClassAllowsAtLeastTheGivenUse applies a draft. Its limits are the bounds, rounded up to whole numbers. The
// draft leaves out bounds that block I/O cannot set.
func TestADraftedClassAllowsAtLeastTheGivenUse(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope)
	wrote, read := classes.Series{Measure: writeBytes, Part: "sda"}, classes.Series{Measure: reads, Part: "sdb"}
	bounds := []classes.Bound{{Use: wrote, Value: 12.5e6}, {Use: read, Value: 7.2}, ofMemory}
	section, err := json.Marshal(f.backend.Draft("new", bounds))
	must(t, err)
	f.apply(string(section))

	limits := map[classes.Series]float64{}
	for _, p := range f.backend.Promises(container(), "new") {
		limits[p.Use] = p.Bound
	}
	if diff := cmp.Diff(map[classes.Series]float64{wrote: 12.5e6, read: 8}, limits); diff != "" {
		t.Errorf("limits of %s (-want +got):\n%s", section, diff)
	}
}

// ofMemory is a bound that block I/O cannot set.
var ofMemory = classes.Bound{Use: classes.Series{Measure: "memory_bytes"}, Value: 1}

func TestNoClassIsDraftedWithoutALimitOfBlockIO(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope)
	if got := f.backend.Draft("new", []classes.Bound{ofMemory}); got != nil {
		t.Errorf("drafted %v, want nil", got)
	}
}
