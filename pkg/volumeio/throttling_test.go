// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// noThrottling is a machine whose kernel was built without CONFIG_BLK_DEV_THROTTLING.
type noThrottling struct{ *simcgroup.Machine }

func isThrottling(name string) bool {
	return strings.HasSuffix(name, "/io.max") || strings.Contains(name, "/blkio.throttle.")
}

func (m noThrottling) ReadFile(name string) ([]byte, error) {
	if isThrottling(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
	}
	return m.Machine.ReadFile(name)
}

func (m noThrottling) WriteFile(name string, data []byte) error {
	if isThrottling(name) {
		return &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
	}
	return m.Machine.WriteFile(name, data)
}

func (m noThrottling) ReadDir(name string) ([]string, error) {
	names, err := m.Machine.ReadDir(name)
	return slices.DeleteFunc(names, func(file string) bool { return isThrottling(name + "/" + file) }), err
}

func TestVolumeClassesNeedThrottling(t *testing.T) {
	m := disks(simcgroup.New())
	m.AddCgroup("/kubepods/pod1")
	tree, err := cgroup.Detect(m)
	if err != nil {
		t.Fatal(err)
	}
	backend := Kind(ioapply.New(ioapply.Options{FS: noThrottling{m}, Tree: tree})).New("volume-io", classes.VolumeScope)
	var unavailable *classes.Unavailable
	if err := backend.Check(t.Context(), &Config{}); !errors.As(err, &unavailable) || unavailable.Reason != "NoThrottling" {
		t.Errorf("got %v", err)
	}
}
