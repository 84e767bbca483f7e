// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
)

const heldFiles = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  rdt: {partitions: {all: {l3Allocation: "100%", classes: {gold: {}, silver: {l3Allocation: "50%"}}}}}
`

// TestMetricsShowWhetherAClassHolds lets class silver occupy 4 MiB of each cache for a window, and then 12 MiB. It may occupy 8 MiB. Class
// gold may occupy the whole cache, so it promises nothing, and has no series.
func TestMetricsShowWhetherAClassHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMonitoringNodeOf(t, heldFiles, func(o *node.Options) { o.HeldInterval = 15 * time.Second })
		n.start(t, "a", "silver", 100)
		occupies := func(bytes int, samples int) {
			t.Helper()
			for cache := range 2 {
				n.machine.Resctrl().Count("qos-silver", cache, "llc_occupancy", strconv.Itoa(bytes))
			}
			for range samples {
				<-time.After(15 * time.Second)
				must(t, n.JudgeHeld(t.Context()))
			}
		}
		wantSeries := func(held, reached, ratio float64) {
			t.Helper()
			want := map[string]float64{
				`qos_class_held{class="silver",resource="k8s.io/rdt"}`:                                      held,
				`qos_class_limit_reached{class="silver",resource="k8s.io/rdt"}`:                             reached,
				`qos_class_limit_use_ratio{class="silver",limit="L3 share",part="0",resource="k8s.io/rdt"}`: ratio,
				`qos_class_limit_use_ratio{class="silver",limit="L3 share",part="1",resource="k8s.io/rdt"}`: ratio,
			}
			got := n.series(t)
			for name, value := range got {
				got[name] = math.Round(value*1000) / 1000 // the kernel rounds the size of a way down
			}
			maps.DeleteFunc(got, func(name string, _ float64) bool {
				return !strings.HasPrefix(name, "qos_class_held") && !strings.HasPrefix(name, "qos_class_limit")
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}

		occupies(4<<20, 1)
		if _, has := n.series(t)[`qos_class_held{class="silver",resource="k8s.io/rdt"}`]; has {
			t.Error("a class is reported before a whole window")
		}
		occupies(4<<20, 5)
		wantSeries(1, 0, 0.5) // held, and not reached
		occupies(12<<20, 6)
		wantSeries(0, 1, 1.5) // reached, and not held
	})
}
