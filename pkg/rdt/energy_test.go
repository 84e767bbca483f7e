// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// joules is the energy of the first package.
func joules() classes.Series { return classes.Series{Measure: "core_joules_total", Part: "0"} }

// withTelemetry returns an Intel CPU that counts energy.
func withTelemetry() sim.Spec {
	spec := sim.IntelSpec()
	spec.TelemetryRMIDs = 576
	return spec
}

func featuresMonitored(features string) string {
	return twoPartitions + "monitoring: {containers: all, features: [" + features + "]}\n"
}

// TestTheEnergyBeforeTheBeginningOfAGroupIsNotCounted reads groups whose RMIDs have counted 5 J before. A container that
// ends between two readings counts, too.
func TestTheEnergyBeforeTheBeginningOfAGroupIsNotCounted(t *testing.T) {
	fs, b, cs := newMonitored(t, withTelemetry(), featuresMonitored("cacheOccupancy, energy"), "qos-gold", 2)
	for _, c := range cs {
		b.Monitor(t.Context(), c, "gold")
	}
	fs.Count("qos-gold", 0, "core_energy", "5.25")
	fs.Count("qos-gold/mon_groups/qos-c1", 0, "core_energy", "7.500000")
	reading, err := b.MeasureClass(t.Context(), "gold")
	must(t, err)
	if got := reading.Class[joules()]; got != 2.75 {
		t.Errorf("the class has used %v J, want 2.75", got)
	}
	if got := reading.Containers["c1"][joules()]; got != 2.5 {
		t.Errorf("the container has used %v J, want 2.5", got)
	}
	if got, has := reading.Containers["c2"][joules()]; got != 0 || !has {
		t.Errorf("a container that has used nothing has %v J (known: %v), want 0", got, has)
	}

	fs.Count("qos-gold/mon_groups/qos-c2", 0, "core_energy", "6")
	b.Unmonitor("c2")
	if got := measured(t, b, "gold")[joules()]; got != 3.75 {
		t.Errorf("with the container that has ended, the class has used %v J, want 3.75", got)
	}
}

func TestOnlySelectedFeaturesAreRead(t *testing.T) {
	for selected, want := range map[string]string{
		"monitoring: containers":                                                "llc_occupancy_bytes memory_bandwidth_bytes_total memory_bandwidth_local_bytes_total",
		"monitoring: {features: [energy]}":                                      "core_activity_farads_total core_joules_total",
		"monitoring: {containers: all, features: [cacheOccupancy]}":             "llc_occupancy_bytes",
		"monitoring: {containers: [gold], features: [energy, memoryBandwidth]}": "core_activity_farads_total core_joules_total memory_bandwidth_bytes_total memory_bandwidth_local_bytes_total",
	} {
		t.Run(selected, func(t *testing.T) {
			b := newBackend(sim.New(withTelemetry()), nil)
			apply(t, b, twoPartitions+selected)
			if got := strings.Join(measuresOf(measured(t, b, "gold")), " "); got != want {
				t.Errorf("measured are %s, want %s", got, want)
			}
		})
	}
}

// TestContainersNeedNoBandwidthCounterIfBandwidthIsNotMonitored uses more containers than the CPU has counters.
func TestContainersNeedNoBandwidthCounterIfBandwidthIsNotMonitored(t *testing.T) {
	spec := sim.AMDSpec()
	spec.Counters = 4
	_, b, cs := newMonitored(t, spec, featuresMonitored("cacheOccupancy"), "qos-gold", 6)
	b.MonitorAll(t.Context(), inClass("gold", cs...))
	if condition := monitoredCondition(t, b); !condition.Healthy || b.Status().Monitored["gold"].Containers != 6 {
		t.Errorf("the condition is %+v", condition)
	}
}

// TestTheConditionNamesTheFeatureThatHasTheFewestRMIDs has 12 RMIDs for energy, and more for the caches. Each group needs an
// RMID of both, even if class files do not monitor energy.
func TestTheConditionNamesTheFeatureThatHasTheFewestRMIDs(t *testing.T) {
	spec := withTelemetry()
	spec.TelemetryRMIDs = 12
	// 8 RMIDs are reserved for classes, one for each of the 8 CLOSIDs. So only 4 of the 10 containers can be monitored.
	for features, want := range map[string]string{
		"energy":         "of the 12 RMIDs of this machine (info/PERF_PKG_MON/num_rmids), 8 are reserved",
		"cacheOccupancy": "(info/PERF_PKG_MON/num_rmids; class files do not monitor energy, so for more RMIDs boot the kernel with rdt=!energy,!perf), 8 are reserved",
	} {
		_, b, cs := newMonitored(t, spec, featuresMonitored(features), "qos-gold", 10)
		b.MonitorAll(t.Context(), inClass("gold", cs...))
		if got := monitoredCondition(t, b).Message; !strings.Contains(got, want) {
			t.Errorf("%s: the condition is %q, want %q in it", features, got, want)
		}
	}
}

func TestAFeatureThatTheMachineCannotMonitorIsReported(t *testing.T) {
	b := newBackend(sim.New(sim.AMDSpec()), nil)
	text := twoPartitions + "monitoring: {features: [energy, cacheOccupancy]}"
	want := classes.Condition{Type: ConditionFeatures, Reason: "CannotMonitor", Message: "the CPU or the kernel cannot monitor energy " +
		"(core_energy is not in info/PERF_PKG_MON/mon_features); remove it from the features of monitoring"}
	for from, status := range applied(t, b, text) {
		if diff := cmp.Diff(want, conditionOf(status, ConditionFeatures)); diff != "" {
			t.Errorf("%s: %s", from, diff)
		}
	}
}
