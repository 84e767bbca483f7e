// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/iotest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

func TestOnlyClassesWithLimitsAreDegradedOnAKernelWithoutThrottling(t *testing.T) {
	for version, m := range map[string]*simcgroup.Machine{"v2": simcgroup.New(), "v1": simcgroup.NewLegacy()} {
		t.Run(version, func(t *testing.T) {
			f := newFixture(t, bfqOnAll(m), classes.ContainerScope)
			f.backend.cgroups.FS = iotest.NoThrottling{Machine: m}
			f.apply("Classes: {slow: [{Devices: [/dev/sda], ThrottleReadBps: 10M}], light: [{Weight: 50}]}")
			s := f.backend.Status()
			if len(s.Degraded) != 1 || !strings.Contains(s.Degraded["slow"], "boot a kernel with CONFIG_BLK_DEV_THROTTLING") {
				t.Errorf("the degraded classes are %v, want only slow", s.Degraded)
			}
			if a, err := f.backend.Adjust(classes.Holder{}, "", "slow"); err != nil || len(a) > 0 {
				t.Errorf("a container of the class gets %v, %v, which the kernel refuses", a, err)
			}

			f.enforce(container(), "", "slow") // a container of the degraded class can start, too
			f.enforce(container(), "slow", "light")
			if seen, err := f.backend.Observe(t.Context(), container(), "light"); err != nil || seen.Class != "light" {
				t.Errorf("observed %+v, %v", seen, err)
			}
		})
	}
}
