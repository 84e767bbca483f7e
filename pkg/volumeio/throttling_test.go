// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"errors"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/test/iotest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

func TestVolumeClassesAreUnavailableOnAKernelWithoutThrottling(t *testing.T) {
	m := disks(simcgroup.New())
	m.AddCgroup("/kubepods/pod1")
	tree, err := cgroup.Detect(m)
	must(t, err)
	backend := Kind(ioapply.New(ioapply.Options{FS: iotest.NoThrottling{Machine: m}, Tree: tree})).New("volume-io", classes.VolumeScope)
	var unavailable *classes.Unavailable
	if err := backend.Check(t.Context(), &Config{}); !errors.As(err, &unavailable) || unavailable.Reason != "NoThrottling" {
		t.Errorf("got %v", err)
	}
}
