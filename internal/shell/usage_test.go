// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package shell_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/shell"
)

// usageAt returns a usage message whose time is noon plus a number of seconds.
func usageAt(seconds int, classes []*qosv1alpha1.ClassUsage, containers ...*qosv1alpha1.ContainerUsage) *qosv1alpha1.WatchUsageResponse {
	at := noon.AsTime().Add(time.Duration(seconds) * time.Second)
	return &qosv1alpha1.WatchUsageResponse{Time: timestamppb.New(at), Classes: classes, Containers: containers}
}

func measurement(name, part string, value float64) *qosv1alpha1.Measurement {
	return &qosv1alpha1.Measurement{Name: name, Part: part, Value: value}
}

func usedByClass(resource, class string, measurements ...*qosv1alpha1.Measurement) *qosv1alpha1.ClassUsage {
	return &qosv1alpha1.ClassUsage{Resource: resource, Class: class, Measurements: measurements}
}

func usedByContainer(pod, container string, measurements ...*qosv1alpha1.Measurement) *qosv1alpha1.ContainerUsage {
	return &qosv1alpha1.ContainerUsage{
		Resource: "k8s.io/blockio", Namespace: "default", Pod: pod, Container: container, Class: "throttled", Id: pod + container, Measurements: measurements,
	}
}

// energyAt has what the class gold uses of two packages, and of the cache whose ID is that of the first package.
func energyAt(seconds int, joules, farads float64) *qosv1alpha1.WatchUsageResponse {
	return usageAt(seconds, []*qosv1alpha1.ClassUsage{usedByClass("k8s.io/rdt", "gold",
		measurement("core_joules_total", "0", joules), measurement("core_joules_total", "1", joules/100), measurement("core_activity_farads_total", "0", farads),
		measurement("llc_occupancy_bytes", "0", 4<<20))})
}

func TestUsagePrints(t *testing.T) {
	const bandwidth, read, waiting = "memory_bandwidth_bytes_total", "fs_reads_bytes_total", "pressure_io_waiting_seconds_total"
	rdt := func(gold, bronze float64) []*qosv1alpha1.ClassUsage {
		return []*qosv1alpha1.ClassUsage{
			usedByClass("k8s.io/rdt", "", measurement("llc_occupancy_bytes", "0", 1000)),
			usedByClass("k8s.io/rdt", "bronze", measurement("llc_occupancy_bytes", "0", 3<<20), measurement(bandwidth, "0", bronze)),
			usedByClass("k8s.io/rdt", "gold", measurement("llc_occupancy_bytes", "0", 30<<20), measurement(bandwidth, "0", gold)),
		}
	}

	before := usageAt(0, rdt(0, 5e9), usedByContainer("web", "main", measurement(read, "sda", 1<<20), measurement(waiting, "", 1)))
	after := usageAt(2, rdt(4<<30, 6e9),
		usedByContainer("new", "main", measurement(read, "sda", 9<<20)),
		usedByContainer("web", "main", measurement(read, "sda", 3<<20), measurement(waiting, "", 1.5)))

	for _, test := range []struct {
		name          string
		before, after *qosv1alpha1.WatchUsageResponse
		view          shell.UsageView
		want          string
	}{
		{"that nothing is measured", usageAt(0, nil), usageAt(1, nil), shell.UsageView{}, `
Nothing is measured on this node: no resource is available, or the machine cannot measure usage.
`},
		{"classes in the order of their names", before, after, shell.UsageView{}, `
RESOURCE    CLASS             PART  CACHE  MEMORY/s
k8s.io/rdt  <system default>  0     1000   -
k8s.io/rdt  bronze            0     3.0Mi  477Mi
k8s.io/rdt  gold              0     30Mi   2.0Gi
`},
		{"the largest memory bandwidth first, and a new container without a rate", before, after, shell.UsageView{Containers: true, SortBy: "memory"}, `
RESOURCE    CLASS             PART  CACHE  MEMORY/s
k8s.io/rdt  gold              0     30Mi   2.0Gi
k8s.io/rdt  bronze            0     3.0Mi  477Mi
k8s.io/rdt  <system default>  0     1000   -

RESOURCE        NAMESPACE  POD  CONTAINER  CLASS      PART  READ/s  WAITING
k8s.io/blockio  default    new  main       throttled  sda   -       -
k8s.io/blockio  default    web  main       throttled  -     -       25%
k8s.io/blockio  default    web  main       throttled  sda   1.0Mi   -
`},
		{"no rate after a restart of the plugin", usageAt(0, rdt(9<<30, 9e9)), usageAt(2, rdt(1, 1)), shell.UsageView{}, `
RESOURCE    CLASS             PART  CACHE
k8s.io/rdt  <system default>  0     1000
k8s.io/rdt  bronze            0     3.0Mi
k8s.io/rdt  gold              0     30Mi
`},
		{"watts of packages beside the cache with the same number", energyAt(0, 10, 1), energyAt(2, 34, 1.4), shell.UsageView{SortBy: "watts"}, `
RESOURCE    CLASS  PART       CACHE  WATTS  FARADS/s
k8s.io/rdt  gold   package 0  -      12     0.2
k8s.io/rdt  gold   package 1  -      0.120  -
k8s.io/rdt  gold   0          4.0Mi  -      -
`},
		{"the share of the time in which a counter has counted",
			usageAt(0, []*qosv1alpha1.ClassUsage{usedByClass("k8s.io/rdt", "gold", measurement("memory_bandwidth_observed_seconds_total", "0", 1))}),
			usageAt(2, []*qosv1alpha1.ClassUsage{usedByClass("k8s.io/rdt", "gold", measurement("memory_bandwidth_observed_seconds_total", "0", 2))}),
			shell.UsageView{}, `
RESOURCE    CLASS  PART  OBSERVED
k8s.io/rdt  gold   0     50%
`},
		{"measures of a resource that the program does not know",
			usageAt(0, []*qosv1alpha1.ClassUsage{usedByClass("example.com/net", "fast", measurement("sent_bytes_total", "eth0", 0), measurement("flows", "eth0", 7))}),
			usageAt(1, []*qosv1alpha1.ClassUsage{usedByClass("example.com/net", "fast", measurement("sent_bytes_total", "eth0", 2048), measurement("flows", "eth0", 7))}),
			shell.UsageView{}, `
RESOURCE         CLASS  PART  FLOWS  SENT_BYTES/s
example.com/net  fast   eth0  7.0    2.0Ki
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(strings.TrimPrefix(test.want, "\n"), shell.Usage(test.before, test.after, test.view)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
