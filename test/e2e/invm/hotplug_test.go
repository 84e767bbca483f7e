// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const secondCPU = "/sys/devices/system/cpu/cpu1/online"

// cpusComeAndGo takes the only CPU of an L3 offline. A class with settings for this L3 is degraded until the CPU is online again.
func cpusComeAndGo(t *testing.T, p *pod) {
	n := p.node
	writeClassFile(t, strings.Replace(classFile, `silver: {l3Allocation: "100%",`, `silver: {l3Allocation: {all: "100%", "1": "50%"},`, 1))
	defer func() {
		mustWrite(t, secondCPU, "1")
		writeForeignGroup(t) // the kernel has reset it, too
		writeClassFile(t, classFile)
		eventually(t, "the first class file is back", wantSchemata(t, "qos-silver", "L2:0=fffff;1=fffff", "L3:0=fc0;1=fc0", "MB:0=50;1=50"))
	}()
	whole := wantSchemata(t, "qos-silver", "L2:0=fffff;1=fffff", "L3:0=fc0;1=1c0", "MB:0=50;1=50")
	eventually(t, "the class has settings for both L3", whole)
	p.run(t, spec{name: "changed"}).wantGroup(t, "qos-silver")

	mustWrite(t, secondCPU, "0")
	const reason = "l3Allocation of cache IDs 1 has no effect: this machine has the IDs 0"
	eventually(t, "the class is degraded", func() error { return n.degraded(t, rdt, "silver", reason) })
	must(t, wantSchemata(t, "qos-silver", "L2:0=fffff", "L3:0=fc0", "MB:0=50")())
	p.run(t, spec{name: "two"}).wantGroup(t, "qos-gold")
	printed, err := output("qos-nri-plugin", "check", configDir)
	if lines := strings.Count(printed, reason); err != nil || lines != 1 {
		t.Errorf("check prints the reason %d times, want once, and returned %v:\n%s", lines, err, printed)
	}

	mustWrite(t, secondCPU, "1")
	eventually(t, "the class has both L3 again", whole)
	eventually(t, "the class is not degraded any more", func() error { return n.degraded(t, rdt, "silver", "") })
	must(t, wantSchemata(t, "qos-gold", "L2:0=fffff;1=fffff", "L3:0=3f;1=3f", "MB:0=100;1=100")())
	p.run(t, spec{name: "main"}).wantGroup(t, "qos-gold")
}

// wantSchemata returns a check of the lines of a group.
func wantSchemata(t *testing.T, group string, lines ...string) func() error {
	return func() error {
		if diff := cmp.Diff(lines, schemataLinesOr(t, group)); diff != "" {
			return fmt.Errorf("%s (-want +got):\n%s", group, diff)
		}
		return nil
	}
}
