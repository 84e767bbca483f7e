// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/lab"
)

// labModel is the file with the cost model of the lab's disk.
const labModel = "/etc/lab-cost.yaml"

// protection measures a container that reads at half of the disk's speed, with each kind of classes. Two other
// containers read and write the same disk as fast as they can.
func protection(t *testing.T, l *laboratory) {
	var uncalibrated error
	if l.cgroupV2 {
		uncalibrated = calibrateLabDisk(t)
	}

	offered := int(fromEnvironment(t, "QOS_LAB_IOPS", 0)) / 2
	reader := l.start(t, "protected", nil, true, spec{devices: []string{labDisk}})
	read := func() (served []lab.Second) {
		must(t, json.Unmarshal([]byte(reader.exec(t, "steady", labDisk, strconv.Itoa(offered), strconv.Itoa(l.seconds))), &served))
		return served
	}

	s := lab.NewProtection("protection-"+l.version(), "A reader at half of the disk's speed, cgroup "+l.version(), offered, read())
	measure := func(situation string) {
		var served []lab.Second
		all := rate(t, func() float64 { read, written := ofDisk(t, "vdb"); return read + written }, func() { served = read() })
		own := 0.0
		for _, second := range served {
			own += float64(second.Served*4096) / float64(len(served))
		}
		s.Measured(situation, served, max(0, all-own)/1e6)
	}

	noisy := l.startNoisy(t, "-beside", nil)
	pods := []*pod{noisy[0].pod, noisy[1].pod}
	measure(lab.NoClass)
	assign(t, "main", "blockio=throttled", pods...)
	measure(lab.Throttled)
	assign(t, "main", "blockio=", pods...)
	l.protectByPods(t, s, measure, reader.pod, pods, uncalibrated)

	for _, p := range append(pods, reader.pod) {
		p.remove(t)
	}
	l.save(t, &s.Scene)
	below(t, &s.Scene, lab.ImpactMedian, lab.Throttled, lab.NoClass, 0.6)
}

// calibrateLabDisk writes labModel. It returns an error if the speed of the disk varies too much, as on a busy host.
func calibrateLabDisk(t *testing.T) error {
	_, err := calibrateIO("qos-nri-plugin", "calibrate-io", "--write", "--yes", "--duration", "10s", "--output", labModel, labDisk)
	switch {
	case err == nil:
		t.Log(mustRead(t, labModel))
	case !varied(err):
		t.Fatal(err)
	}
	return err
}

// protectByPods measures the classes of pod scope, which need cgroup v2.
func (l *laboratory) protectByPods(t *testing.T, s *lab.Protection, measure func(string), reader *pod, noisy []*pod, uncalibrated error) {
	if !l.cgroupV2 {
		s.CannotShow(lab.ByWeights, "cgroup v1 has no iocost")
		s.CannotShow(lab.ByLatency, "cgroup v1 has no io.latency")
		return
	}

	if uncalibrated != nil {
		_, reason, _ := strings.Cut(uncalibrated.Error(), "Error: ")
		s.CannotShow(lab.ByWeights, reason)
	} else {
		writeClassFile(t, strings.Replace(labClasses, "    Classes:\n      heavy", "    CostModels: ["+labModel+"]\n    Classes:\n      heavy", 1))
		l.waitWeights(t, true)
		assign(t, "", podBlockio+"=heavy", reader)
		assign(t, "", podBlockio+"=light", noisy...)
		measure(lab.ByWeights)
		assign(t, "", podBlockio+"=", noisy...)
		writeClassFile(t, labClasses)
		l.waitWeights(t, false)
	}

	assign(t, "", podBlockio+"=prompt", reader)
	measure(lab.ByLatency)
	assign(t, "", podBlockio+"=", reader)
}
