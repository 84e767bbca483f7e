// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

// These are the resources of class files.
const (
	rdt      = "k8s.io/rdt"
	blockIO  = "k8s.io/blockio"
	podIO    = "qos.noderesource.dev/pod-blockio"
	volumeIO = "qos.noderesource.dev/volume-io"
)

// classFile is one state of the class file. The class bronze always exists.
type classFile struct {
	// number is the number of the file. The descriptions of the classes contain it, so the status of the plugin shows
	// which file is in force.
	number int
	// `wrong` is a text that makes the class file invalid. It is empty if the class file is valid.
	wrong string
	// defaultClass is the default class of RDT, or empty.
	defaultClass string
	// `gold` and `silver` are true if these classes exist. `goldCapacity` and `lowCapacity` are the capacities of the
	// classes gold and low.
	gold, silver, blockIO, podIO bool
	goldCapacity, lowCapacity    int
	// `share` is the part of the cache, in per cent, that only gold has. `bandwidth` is the memory bandwidth of bronze.
	share, bandwidth int
	// `rate` is the read limit of the class slow, and `calmRate` is that of the class calm, both in bytes per second.
	rate, calmRate int
	// `monitoring` is the field of the RDT section that selects the containers to monitor, e.g. "containers".
	monitoring string
}

// These are the values of `monitoring`. monitorSome selects the class bronze and the system default.
const monitorAll, monitorSome = "containers", "{containers: [bronze, system/default]}"

func firstClassFile() classFile {
	return classFile{number: 1, defaultClass: "bronze", gold: true, silver: true, blockIO: true, podIO: true,
		monitoring: monitorAll, goldCapacity: 2, lowCapacity: 3, share: 50, bandwidth: 20, rate: 1000, calmRate: 9000}
}

// changed returns a valid copy of the class file, with one or two random changes.
func (c classFile) changed(random *rand.Rand, number int) classFile {
	c.number, c.wrong = number, ""
	for range 1 + random.IntN(2) {
		switch random.IntN(12) {
		case 0:
			c.gold = random.IntN(4) > 0
		case 1:
			c.silver = random.IntN(3) > 0
		case 2:
			c.goldCapacity = random.IntN(5)
		case 3:
			c.lowCapacity = random.IntN(4)
		case 4:
			c.share = 25 * (1 + random.IntN(3))
		case 5:
			c.bandwidth = 10 * (1 + random.IntN(10))
		case 6:
			c.rate = 1000 * (1 + random.IntN(9))
		case 7:
			c.blockIO = random.IntN(3) > 0
		case 8:
			c.podIO = random.IntN(3) > 0
		case 9:
			c.calmRate = 1000 * (4 + random.IntN(9))
		case 10:
			c.defaultClass = []string{"", "bronze", "silver"}[random.IntN(3)]
		case 11:
			c.monitoring = []string{"", monitorAll, monitorSome}[random.IntN(3)]
		}
	}

	if c.defaultClass == "silver" {
		c.silver = true
	}

	return c
}

// broken returns a copy of the class file that is invalid.
func (c classFile) broken(random *rand.Rand, number int) classFile {
	c.number = number
	c.wrong = []string{
		"resources: [\n", "kind: Wrong\n", "# a resource without a backend\n- name: vendor.example/none\n",
		"- name: k8s.io/rdt\n  rdt: {partitions: {p: {l3Allocation: \"0%\", classes: {c: {}}}}}\n",
		"\x00\x01\x02", strings.Repeat("- ", 1<<19),
	}[random.IntN(6)]
	return c
}

// text returns the text of the class file.
func (c classFile) text() string {
	var text strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	say("apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n- name: %s", rdt)
	if c.defaultClass != "" {
		say("  defaultClass: %s", c.defaultClass)
	}

	say("  classes:\n  - {name: bronze, description: file %d}", c.number)
	if c.gold {
		say("  - {name: gold, capacity: %d, description: file %d}", c.goldCapacity, c.number)
	}

	if c.silver {
		say("  - {name: silver, description: file %d}", c.number)
	}

	say("  rdt:")
	if c.monitoring != "" {
		say("    monitoring: %s", c.monitoring)
	}

	say("    partitions:")
	if c.gold {
		say("      exclusive: {l3Allocation: %d%%, mbAllocation: [100%%], classes: {gold: {l3Allocation: 100%%}}}", c.share)
	}

	say("      shared:\n        l3Allocation: %d%%\n        mbAllocation: [100%%]\n        classes:", 100-c.share)
	say("          bronze: {l3Allocation: 100%%, mbAllocation: [%d%%]}", c.bandwidth)
	if c.silver {
		say("          silver: {l3Allocation: 100%%}")
	}

	if c.blockIO {
		say("- name: %s\n  classes: [{name: slow, description: file %d}, {name: heavy, capacity: 4}]", blockIO, c.number)
		say("  blockio:\n    Classes:")
		say("      slow: [{Devices: [\"/dev/vd[a-z]\"], ThrottleReadBps: %d}]\n      heavy: [{Weight: 400}]", c.rate)
	}

	if c.podIO {
		say("- name: %s\n  scope: pod\n  classes: [{name: low, capacity: %d, description: file %d}]", podIO, c.lowCapacity, c.number)
		say("  blockio: {Classes: {low: [{Devices: [\"/dev/vd[a-z]\"], ThrottleWriteBps: 7000}]}}")
	}

	say("- name: %s\n  scope: volume\n  classes: [{name: calm}, {name: few, capacity: 2}]", volumeIO)
	say("  volumeio: {classes: {calm: {maxReadBps: %d}, few: {maxReadBps: 5000, maxWriteBps: 8000}}}", c.calmRate)
	return text.String() + c.wrong
}

// classes returns the names of the classes of a resource, or nil if the resource is not configured.
func (c classFile) classes(resource string) []string {
	switch {
	case resource == blockIO && c.blockIO:
		return []string{"slow", "heavy"}
	case resource == podIO && c.podIO:
		return []string{"low"}
	case resource == volumeIO:
		return []string{"calm", "few"}
	case resource != rdt:
		return nil
	}

	names := []string{"bronze"}
	if c.gold {
		names = append(names, "gold")
	}

	if c.silver {
		names = append(names, "silver")
	}

	return names
}

// bounded reports whether a class has a capacity.
func (c classFile) bounded(class string) bool {
	return class == "gold" && c.goldCapacity > 0 || class == "low" && c.lowCapacity > 0 || class == "heavy" || class == "few"
}

// expect returns the values that the classes must have in the kernel.
func (c classFile) expect(m Machine) invariant.Expect {
	gold := 0
	if c.gold {
		gold = m.Ways * c.share / 100
	}

	shared := (1<<(m.Ways*(100-c.share)/100) - 1) << gold
	group := func(mask, bandwidth int) string {
		caches, memory := make([]string, len(m.Domains)), make([]string, len(m.Domains))
		for i, id := range m.Domains {
			caches[i], memory[i] = fmt.Sprintf("%d=%x", id, mask), fmt.Sprintf("%d=%d", id, bandwidth)
		}
		return "L3:" + strings.Join(caches, ";") + "\nMB:" + strings.Join(memory, ";")
	}

	e := invariant.Expect{
		Schemata: map[string]string{"bronze": group(shared, c.bandwidth)},
		Limits:   map[string]map[string]map[string]string{},
		Volumes:  map[string]map[string]uint64{"calm": {"rbps": uint64(c.calmRate)}, "few": {"rbps": 5000, "wbps": 8000}},
		Monitored: func(class string) bool {
			return c.monitoring == monitorAll || c.monitoring == monitorSome && (class == "bronze" || class == "")
		},
		RMIDs: m.RMIDs,
	}

	if c.gold {
		e.Schemata["gold"] = group(1<<gold-1, 100)
	}

	if c.silver {
		e.Schemata["silver"] = group(shared, 100)
	}

	if c.blockIO {
		e.Limits[blockIO] = map[string]map[string]string{"slow": limits(m.Disks, "rbps", c.rate), "heavy": m.Weights}
	}

	if c.podIO {
		e.Limits[podIO] = map[string]map[string]string{"low": limits(m.Disks, "wbps", 7000)}
	}

	return e
}

func limits(disks []string, kind string, rate int) map[string]string {
	var text strings.Builder
	for _, disk := range slices.Sorted(slices.Values(disks)) {
		fmt.Fprintf(&text, "%s %s=%d\n", disk, kind, rate)
	}
	return map[string]string{"io.max": text.String()}
}
