// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// hanging is a kernel in which one write of schemata hangs.
type hanging struct {
	*sim.FS
	hangs             *atomic.Bool
	reached, released chan struct{}
}

func (h hanging) WriteFile(path string, data []byte) error {
	if strings.HasSuffix(path, "/schemata") && h.hangs.Swap(false) {
		close(h.reached)
		<-h.released
	}
	return h.FS.WriteFile(path, data)
}

// TestAScrapeDoesNotWaitWhileCountersAreReassigned measures a class while the backend reads the counters of another
// group. It would hang if the scrape waited.
func TestAScrapeDoesNotWaitWhileCountersAreReassigned(t *testing.T) {
	spec := sim.AMDSpec()
	spec.Counters = 8
	fs := sim.New(spec)
	var scrape func()
	b := newBackend(altered{fs, func(path string, data []byte, err error) ([]byte, error) {
		if now := scrape; now != nil && strings.HasSuffix(path, "/mbm_L3_assignments") && strings.Contains(path, "mon_groups") {
			scrape = nil
			now()
		}
		return data, err
	}}, &several{})
	apply(t, b, monitorAll)
	fs.AddTask(1, "qos-gold")
	running := inClass("gold", classes.Holder{ID: "c1", Container: "main", PID: 1})
	b.MonitorAll(t.Context(), running)

	used := 0
	scrape = func() { used = len(measured(t, b, "gold")) }
	b.MonitorAll(t.Context(), running)
	if used == 0 {
		t.Error("the class was not measured while the counters were read")
	}
}

func TestHooksDoNotWaitForAReloadThatHangsInTheKernel(t *testing.T) {
	fs := hanging{sim.New(sim.IntelSpec()), &atomic.Bool{}, make(chan struct{}), make(chan struct{})}
	b := newBackend(fs, nil)
	apply(t, b, twoPartitions)
	config, done := parse(t, others), make(chan error, 1)
	fs.hangs.Store(true)
	go func() { done <- b.Apply(t.Context(), config) }()
	<-fs.reached
	if got, err := b.Adjust(classes.Holder{}, "", "gold"); err != nil || got[classes.Setting{Name: classes.SettingClosID}] != "qos-gold" {
		t.Errorf("the adjustment of a new container is %+v, with the error %v", got, err)
	}

	if got := b.Status(); len(got.Conditions) == 0 || !got.Conditions[0].Healthy {
		t.Errorf("the status is %+v, want that of the previous configuration", got)
	}

	if got := b.Schemata(); got["gold"] == "" || got["tin"] != "" {
		t.Errorf("the schemata are %v, want those of the previous configuration", got)
	}

	close(fs.released)
	must(t, <-done)
	if _, err := b.Adjust(classes.Holder{}, "", "tin"); err != nil {
		t.Errorf("after the reload, Adjust to a new class returns %v", err)
	}
}
