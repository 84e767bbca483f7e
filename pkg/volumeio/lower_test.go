// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// set writes limits of the pod as another program does.
func (v *volumes) set(limits string) {
	v.t.Helper()
	must(v.t, v.machine.WriteFile(podMax, []byte(limits)))
}

// wantLower checks that a volume has its class, and the lower limits of another program that are reported.
func (v *volumes) wantLower(class, foreign string) {
	v.t.Helper()
	seen, err := v.volume.Observe(v.t.Context(), v.hold(10, "/data", class), class)
	if want := (classes.Observation{Class: class, Known: true, Foreign: foreign}); err != nil || seen != want {
		v.t.Errorf("observed %+v, %v; want %+v", seen, err, want)
	}
}

// TestALowerLimitOfAnotherProgramIsKept is about programs that write to the cgroup of the pod, e.g. CSI drivers.
func TestALowerLimitOfAnotherProgramIsKept(t *testing.T) {
	newPod := func(t *testing.T) *volumes {
		v := newVolumes(t, withMounts("50 40 8:16 / /data rw - ext4 /dev/sdb rw"))
		v.holdPod()
		return v
	}

	t.Run("if it was set before the container started", func(t *testing.T) {
		v := newPod(t)
		v.set("8:16 rbps=1234 wbps=max riops=77 wiops=max\n")
		v.mustStart(10, "/data", "silver")
		v.want(podMax, "8:16 rbps=1234 wbps=5000000 riops=77 wiops=max\n")
		v.wantLower("silver", "lower limits on 8:16 rbps=1234 riops=77")
	})
	t.Run("when the class changes, and after the volume has ended", func(t *testing.T) {
		v := newPod(t)
		v.mustStart(10, "/data", "silver")
		v.wantLower("silver", "")
		v.set("8:16 wbps=1234\n")
		v.wantLower("silver", "lower limits on 8:16 wbps=1234")
		v.mustStart(10, "/data", "gold")
		v.want(podMax, "8:16 rbps=20000000 wbps=1234 riops=500 wiops=max\n")
		v.wantLower("gold", "lower limits on 8:16 wbps=1234")
		v.release(classes.VolumeID("c10", "/data"))
		v.repair()
		v.want(podMax, "8:16 rbps=max wbps=1234 riops=max wiops=max\n")
	})
	t.Run("but a higher limit is not kept", func(t *testing.T) {
		v := newPod(t)
		v.mustStart(10, "/data", "silver")
		v.set("8:16 rbps=30000000\n")
		v.wantObserved(10, "/data", "silver", "")
		v.mustStart(10, "/data", "silver")
		v.want(podMax, "8:16 "+silverLimits)
	})
	t.Run("until the program removes it", func(t *testing.T) {
		v := newPod(t)
		v.set("8:16 rbps=1234\n")
		v.mustStart(10, "/data", "silver")
		v.set("8:16 rbps=max\n")
		v.wantObserved(10, "/data", "silver", "")
		v.mustStart(10, "/data", "silver")
		v.want(podMax, "8:16 "+silverLimits)
		v.wantLower("silver", "")
	})
}
