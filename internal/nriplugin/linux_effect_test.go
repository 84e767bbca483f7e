// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

func TestAnIOPriorityOnDisksWithoutPrioritiesIsNotReportedAsInForce(t *testing.T) {
	r := newProfileRig(t, "a: {ioPriority: idle}")
	id := r.mustRunBurstable(t, "a", profile+"=a")
	for _, step := range []struct{ vda, vdb, limited string }{
		{"none", "none", "ioPriority has no effect on vda, vdb"},
		{"mq-deadline", "none", "ioPriority has no effect on vdb"},
		{"mq-deadline", "bfq", ""},
	} {
		for disk, scheduler := range map[string]string{"vda": step.vda, "vdb": step.vdb} {
			must(t, r.host.Machine.WriteFile("/sys/block/"+disk+"/queue/scheduler", []byte(scheduler)))
		}
		r.node.Repair(t.Context())
		r.wantLimited(t, id, step.limited)
	}
}

// TestTheListOfDisksWithoutPrioritiesIsBounded adds 500 disks to the machine.
func TestTheListOfDisksWithoutPrioritiesIsBounded(t *testing.T) {
	r := newProfileRig(t, "a: {ioPriority: idle}")
	id := r.mustRunBurstable(t, "a", profile+"=a")
	for i := range 500 {
		r.host.Cgroups().AddFile(fmt.Sprintf("/sys/block/sd%03d/queue/scheduler", i), "[none] mq-deadline\n")
	}
	r.node.Repair(t.Context())
	if got := r.assignment(t, id, profile).GetLimited(); !strings.Contains(got, "sd000, sd001") || !strings.HasSuffix(got, "more") || len(got) > 200 {
		t.Errorf("the class is limited: %q", got)
	}
}

// TestAContainerThatIsStuckAtMemoryHighIsReported: a container is stuck if it uses at least 99% of memory.high, and all of its
// processes wait for memory for at least half of the time, in two repairs one after the other. The report ends when the use is
// below 90% of memory.high, or the waiting below 25% of the time.
func TestAContainerThatIsStuckAtMemoryHighIsReported(t *testing.T) {
	r := newProfileRig(t, "a: {memory: {high: 512Mi}}")
	id := r.mustRunBurstable(t, "a", profile+"=a")
	const stuck = "the container is stuck at memory.high: its processes wait for memory most of the time (raise memory.high or allow swap or delete the pod)"
	for _, step := range []struct {
		use     int    // in percent of memory.high
		waits   string // in percent of the time
		limited string
	}{
		{100, "97.20", ""}, // only one repair
		{100, "50.20", stuck},
		{98, "49.80", stuck}, // neither is low enough to end the report
		{100, "49.80", stuck},
		{100, "3.10", ""},
		{100, "97.20", ""},
		{100, "49.80", ""}, // so that the next repair counts as the first one again
		{100, "97.20", ""},
		{100, "97.20", stuck},
		{50, "97.20", ""},
	} {
		r.host.Cgroups().AddFile(r.cgroupFile(t, id, "memory.current"), fmt.Sprintln(512<<20*step.use/100))
		r.host.Cgroups().AddFile(r.cgroupFile(t, id, "memory.pressure"),
			"some avg10=99.00 avg60=1.00 avg300=0.00 total=1\nfull avg10="+step.waits+" avg60=1.00 avg300=0.00 total=1\n")
		r.node.Repair(t.Context())
		r.wantLimited(t, id, step.limited)
	}
}

// TestLimitsThatCanHarmAContainerAreConditions compares the conditions of a class file, on machines with and without swap.
func TestLimitsThatCanHarmAContainerAreConditions(t *testing.T) {
	const high = "MemoryHighSafe/NoSwap: a container of class a that allocates more than memory.high can stall for minutes, and is not killed: " +
		"without swap, the kernel cannot reclaim what programs allocate; "
	const noSwap = high + "the machine has no swap; add swap, or remove memory.high"
	const remedy = "; set memory.swapMax above 0, here or in a class of another resource, or remove memory.high"
	const zero, unset = "memory.swapMax is 0 in class a", "memory.swapMax is missing in class %s, and the kubelet allows no swap by default"
	both := strings.Replace(high, "class a", "class a, b", 1) + zero + "; " + fmt.Sprintf(unset, "b") + remedy
	const minimum = "MemoryMinSafe/WholeLimit: memory.min of class a is the whole memory limit or more, which keeps the kernel from reclaiming the page cache: " +
		"a container can be killed because of the files that it writes; lower memory.min, or set memory.low"
	notBelow := func(property string) string {
		return "MemoryProtectionBelowHigh/NotBelowHigh: " + property + " of class a is not below memory.high: the kernel still reclaims what a container " +
			"uses above memory.high; lower " + property + ", or raise memory.high"
	}
	const header = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	const swap = header + "/dev/vdb partition 1 0 -2\n"
	for _, test := range []struct{ name, swaps, class, want string }{
		{"a machine without swap", header, "{memory: {high: 80%}}", noSwap},
		{"a machine without swap, and a class that allows swap", header, "{memory: {high: 80%, swapMax: max}}", noSwap},
		{"a class that leaves swap to the kubelet", swap, "{memory: {high: 80%}}", high + fmt.Sprintf(unset, "a") + remedy},
		{"a class that allows no swap", swap, "{memory: {high: 80%, swapMax: 0}}", high + zero + remedy},
		{"a class that allows no swap, and one that leaves it to the kubelet", swap, "{memory: {high: 80%, swapMax: 0}}, b: {memory: {high: 64Mi}}", both},
		{"a class that allows swap", swap, "{memory: {high: 80%, swapMax: 2Gi}}", ""},
		{"memory.high is max", header, "{memory: {high: max}}", ""},
		{"all memory protected", header, "{memory: {min: 100%}}", minimum},
		{"more than any limit protected", header, "{memory: {min: max}}", minimum},
		{"a share above memory.high", swap, "{memory: {high: 50%, swapMax: max, min: 50%, low: 40%}}", notBelow("memory.min")},
		{"a size above memory.high", swap, "{memory: {high: 64Mi, swapMax: max, min: 1Mi, low: 65Mi}}", notBelow("memory.low")},
		{"memory.low is max, which is above memory.high", swap, "{memory: {high: 64Mi, swapMax: max, low: max}}", notBelow("memory.low")},
		{"a share above memory.high, and a size that cannot be compared with it", swap, "{memory: {high: 50%, swapMax: max, min: 64Mi, low: 63%}}", notBelow("memory.low")},
		{"memory.high is max, and memory.low, too", swap, "{memory: {high: max, low: max}}", ""},
		{"some memory protected", header, "{memory: {min: 50%, low: 100%}}", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine(simcgroup.New())
			m.Cgroups().AddFile("/proc/swaps", test.swaps)
			r := newMachineRigOn(t, m, profileFile("a: "+test.class), nriruntime.Options{})
			var got []string
			for _, c := range r.node.Status().Resources[0].Conditions {
				if c.Limited && c.Healthy && c.Type != "NeedsLimits" { // each class with a percentage has this condition
					got = append(got, c.Type+"/"+c.Reason+": "+c.Message)
				}
			}
			if strings.Join(got, "\n") != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
