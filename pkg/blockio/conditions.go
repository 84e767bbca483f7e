// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

func (r *resolver) conditions(scope classes.Scope) []classes.Condition {
	slices.Sort(r.missing)

	devices := classes.Condition{Type: "DevicesMatched", Healthy: true, Reason: "AllMatched",
		Message: "every entry of a Devices list matches block devices only"}
	if problems := slices.Concat(slices.Compact(r.missing), r.ignored); len(problems) > 0 {
		devices.Healthy, devices.Reason = false, "SomeIgnored"
		devices.Message = strings.Join(problems, "; ") + "; correct the field Devices, or attach the devices"
	}

	all := []classes.Condition{devices}
	if len(r.partitions) > 0 {
		all = append(all, classes.Condition{Type: "WholeDisks", Reason: "PartitionMeansDisk",
			Message: strings.Join(r.partitions, "; ") + "; name the disk"})
	}
	if r.targets {
		all = append(all, latencyCondition(&r.machine, scope))
	}
	if len(r.modelled)+len(r.unmodelled) > 0 {
		all = append(all, r.costCondition())
	}
	if r.weighs {
		all = append(all, weightsCondition(&r.machine, scope))
	}
	return all
}

// weightsCondition reports whether weights have an effect, and between which cgroups. The kernel compares the weights
// of cgroups with the same parent.
func weightsCondition(m *iocgroup.Machine, scope classes.Scope) classes.Condition {
	if len(m.Acts) > 0 {
		against := "the weight of a container counts only against other containers of its pod; to weight pods, use a resource with scope: pod"
		if scope == classes.PodScope {
			against = "the weight of a pod counts only against pods of the same quality of service (guaranteed, burstable or best effort)"
		}
		return classes.Condition{Type: "WeightsEffective", Healthy: true, Limited: true, Reason: "SchedulerActs",
			Message: "weights are enabled on at least one device; " + against}
	}
	return classes.Condition{Type: "WeightsEffective", Reason: "NoScheduler",
		Message: "weights are not enabled on any device, so they have no effect; " + iocgroup.WeightRemedy(m.Version)}
}

// latencyCondition reports whether latency targets have an effect, and which cgroups they slow down. While a cgroup
// misses its target, the kernel reduces the I/O of cgroups with the same parent that have a larger target or none
// (block/blk-iolatency.c).
func latencyCondition(m *iocgroup.Machine, scope classes.Scope) classes.Condition {
	reason := noLatency(m)
	switch {
	case m.FilesUnknown:
		return classes.Condition{Type: "LatencyEffective", Reason: "NotKnownYet", Message: reason}
	case reason != "":
		return classes.Condition{Type: "LatencyEffective", Reason: "NoLatencyFile", Message: "latency targets have no effect: " + reason}
	}
	against := "the latency target of a container slows down only other containers of its pod; to protect pods, use a resource with scope: pod"
	if scope == classes.PodScope {
		against = "the latency target of a pod slows down only pods of the same quality of service (guaranteed, burstable or best effort); " +
			"that of a guaranteed pod also slows down all burstable and best-effort pods"
	}
	return classes.Condition{Type: "LatencyEffective", Healthy: true, Limited: true, Reason: "KernelActs",
		Message: "the kernel has io.latency; " + against}
}

// noLatency returns the reason why the machine has no latency targets, or nothing.
func noLatency(m *iocgroup.Machine) string {
	switch {
	case m.Version == 1:
		return "cgroup v1 has no latency targets; use cgroup v2"
	case m.FilesUnknown:
		return "it is not known yet whether the kernel has io.latency, because no cgroup has the io controller; " +
			"the first container or pod changes that, unless cgroup.subtree_control lacks io"
	case !slices.Contains(m.Files, iocgroup.IOLatency):
		return "this kernel has no io.latency; boot a kernel with CONFIG_BLK_CGROUP_IOLATENCY"
	}
	return ""
}
