// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// everySetting has a value of each setting that NRI has.
func everySetting() classes.Adjustment {
	return classes.Adjustment{
		{Name: classes.SettingClosID}:                            "qos-gold",
		{Name: classes.SettingUnified, Key: "memory.high"}:       "800",
		{Name: classes.SettingOOMScoreAdj}:                       "-500",
		{Name: classes.SettingRlimit, Key: "RLIMIT_NOFILE"}:      "hard=1048576 soft=1024",
		{Name: classes.SettingIOPriority}:                        "class=IOPRIO_CLASS_BE priority=4",
		{Name: classes.SettingScheduler}:                         "policy=SCHED_FIFO priority=3 flags=SCHED_FLAG_RESET_ON_FORK,SCHED_FLAG_RECLAIM",
		{Name: classes.SettingSysctl, Key: "net.core.somaxconn"}: "1024",
		{Name: classes.SettingMemoryPolicy}:                      "mode=MPOL_BIND nodes=0-1 flags=MPOL_F_STATIC_NODES",
	}
}

func TestEverySettingSurvivesTheConversionToNRIAndBack(t *testing.T) {
	want := everySetting()
	if len(want) != len(nriSettings()) {
		t.Errorf("this test has %d settings, NRI has %d", len(want), len(nriSettings()))
	}

	adjust := &api.ContainerAdjustment{}
	must(t, setAll(adjust, want, "v0.12.0"))
	if diff := cmp.Diff(want, adjusted(adjust)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheSettingsOfAContainerAreThoseOfItsSpecification(t *testing.T) {
	adjust := &api.ContainerAdjustment{}
	want := everySetting()
	delete(want, classes.Setting{Name: classes.SettingMemoryPolicy}) // NRI does not report it
	must(t, setAll(adjust, want, "v0.12.0"))

	got := described(&api.Container{Rlimits: adjust.GetRlimits(), Linux: &api.LinuxContainer{
		Rdt: adjust.GetLinux().GetRdt(), Resources: adjust.GetLinux().GetResources(), OomScoreAdj: adjust.GetLinux().GetOomScoreAdj(),
		IoPriority: adjust.GetLinux().GetIoPriority(), Scheduler: adjust.GetLinux().GetScheduler(), Sysctl: adjust.GetLinux().GetSysctl(),
	}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBadValuesOfSettingsAreErrorsThatNameTheSetting(t *testing.T) {
	for setting, test := range map[classes.Setting]struct{ value, want string }{
		{Name: classes.SettingOOMScoreAdj}: {"high", `process.oomScoreAdj: "high": strconv.Atoi: parsing "high": invalid syntax`},
		{Name: classes.SettingIOPriority}:  {"class=FAST", `process.ioPriority: "class=FAST": class: "FAST" is no IOPrioClass`},
		{Name: classes.SettingScheduler}:   {"speed=1", `process.scheduler: "speed=1": "speed" is no field of LinuxScheduler`},
		{Name: "process.color"}:            {"red", "process.color: NRI cannot set it"},
	} {
		err := setAll(&api.ContainerAdjustment{}, classes.Adjustment{setting: test.value}, "v0.12.0")
		if err == nil || err.Error() != test.want {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
}
