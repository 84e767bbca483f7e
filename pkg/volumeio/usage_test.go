// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const podStat = "/sys/fs/cgroup/kubepods/pod1/io.stat"

func TestAVolumeIsMeasuredByTheCgroupOfItsPod(t *testing.T) {
	v := newVolumes(t, withMounts("50 40 8:16 / /data rw - ext4 /dev/sdb rw"))
	v.machine.AddFile(podStat, "8:0 rbytes=9 wbytes=9 rios=9 wios=9\n8:16 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=5 dios=6\n")
	v.mustStart(10, "/data", "gold")
	v.set("8:16 wiops=77\n") // another program
	of := func(measure string) classes.Series { return classes.Series{Measure: measure, Part: "sdb"} }
	want := classes.Reading{
		of("read_bytes_total"): 4096, of("written_bytes_total"): 8192, of("reads_total"): 1, of("writes_total"): 2,
		of("max_read_bps"): 20000000, of("max_read_iops"): 500, of("max_write_iops"): 77,
	}
	got, err := v.volume.(classes.VolumeMeter).MeasureVolume(t.Context(), v.hold(10, "/data", "gold"))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestTheUsageOfAVolumeWithoutIOIsZero(t *testing.T) {
	v := newVolumes(t, withMounts("50 40 8:16 / /data rw - ext4 /dev/sdb rw"))
	v.machine.AddFile(podStat, "")
	v.mustStart(10, "/data", "silver")
	got, err := v.volume.(classes.VolumeMeter).MeasureVolume(t.Context(), v.hold(10, "/data", "silver"))
	if reads, measured := got[classes.Series{Measure: "reads_total", Part: "sdb"}]; err != nil || !measured || reads != 0 {
		t.Errorf("measured %v, %v", got, err)
	}
}

func TestAVolumeIsNotMeasuredBeforeItHasLimitsOrAfterItsPodHasEnded(t *testing.T) {
	v := newVolumes(t, withMounts("50 40 8:16 / /data rw - ext4 /dev/sdb rw"))
	meter := v.volume.(classes.VolumeMeter)
	if got, err := meter.MeasureVolume(t.Context(), v.hold(10, "/data", "silver")); err != nil || len(got) > 0 {
		t.Errorf("before its class is enforced: %v, %v", got, err)
	}
	v.mustStart(10, "/data", "silver")
	gone := v.hold(10, "/data", "silver")
	gone.CgroupsPath += "-gone"
	if got, err := meter.MeasureVolume(t.Context(), gone); !errors.Is(err, classes.ErrEnded) {
		t.Errorf("after its pod has ended: %v, %v", got, err)
	}
}

func TestTheUsageOfAVolumeIsComparedWithTheLimitsOfItsClass(t *testing.T) {
	v := newVolumes(t, withMounts("50 40 8:16 / /data rw - ext4 /dev/sdb rw"))
	promiser, gold := v.volume.(classes.Promiser), v.hold(10, "/data", "gold")
	if got := promiser.Promises(gold, "gold"); len(got) > 0 {
		t.Errorf("before its class is enforced: %+v", got)
	}
	v.mustStart(10, "/data", "gold")
	bounds := map[string]float64{}
	for _, p := range promiser.Promises(gold, "gold") {
		bounds[p.Name+" "+p.Use.Measure+" "+p.Use.Part] = p.Bound
	}
	want := map[string]float64{"maxReadBps read_bytes_total sdb": 20000000, "maxReadIops reads_total sdb": 500}
	if diff := cmp.Diff(want, bounds); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := promiser.Promises(gold, classes.SystemDefault); len(got) > 0 {
		t.Errorf("the system default promises %+v", got)
	}
}
