// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"strings"
	"testing"
)

func TestMistakesInTheMonitoringSectionAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"monitoring: yes":                              `monitoring: is "yes"`,
		"monitoring: pods":                             `monitoring: is "pods"; write "containers" to monitor all containers`,
		"monitoring: {pods: [gold]}":                   "monitoring.pods",
		"monitoring: {containers: []}":                 "monitoring: selects no container",
		"monitoring: {}":                               "monitoring: selects no container",
		"monitoring:":                                  "monitoring: selects no container",
		"monitoring: [gold]":                           "monitoring",
		"monitoring: {containers: gold}":               "monitoring.containers",
		`monitoring: {containers: all, rotate: "5"}`:   `monitoring.rotate: is "5"; write a time from 1s to 1h, for example 10s`,
		"monitoring: {containers: all, rotate: 1ms}":   "monitoring.rotate: is",
		"monitoring: {rotate: 10s}":                    "monitoring: selects no container",
		"monitoring: {features: []}":                   "monitoring.features: selects no feature; write some of cacheOccupancy, memoryBandwidth, energy",
		"monitoring: {features: [joules]}":             `monitoring.features[0]: "joules" is not a feature`,
		"monitoring: {features: [energy, energy]}":     "monitoring.features[1]: lists the feature a second time",
		"monitoring: {features: [energy], rotate: 9s}": "monitoring: selects no container",
		"monitoring: {containers: [silver]}":           `monitoring.containers[0]: "silver" is not a class of this section`,
		"monitoring: {containers: [gold, gold]}":       "monitoring.containers[1]: lists the class a second time",
	} {
		if _, err := parseConfig(twoPartitions + text); err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%s: %v, want one problem with %q", text, err, want)
		}
	}
}
