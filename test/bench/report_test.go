// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i))
	}
	for _, test := range []struct {
		name    string
		samples []time.Duration
		p       int
		want    time.Duration
	}{
		{"the middle of a hundred", hundred, 50, 50},
		{"all but one of a hundred", hundred, 99, 99},
		{"the only one", []time.Duration{7}, 99, 7},
		{"of few, the largest", []time.Duration{3, 1, 2}, 99, 3},
		{"of none", nil, 50, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := percentile(test.samples, test.p); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}
