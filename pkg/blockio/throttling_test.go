// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
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

func TestLimitsAreDegradedOnAKernelWithoutThrottling(t *testing.T) {
	for version, m := range map[string]*simcgroup.Machine{"v2": simcgroup.New(), "v1": simcgroup.NewLegacy()} {
		t.Run(version, func(t *testing.T) {
			f := newFixture(t, bfqOnAll(m), classes.ContainerScope)
			f.backend.cgroups.FS = noThrottling{m}
			f.apply("Classes: {slow: [{Devices: [/dev/sda], ThrottleReadBps: 10M}], light: [{Weight: 50}]}")
			s := f.backend.Status()
			if len(s.Degraded) != 1 || !strings.Contains(s.Degraded["slow"], "boot a kernel with CONFIG_BLK_DEV_THROTTLING") {
				t.Errorf("degraded: %v", s.Degraded)
			}
			if a, err := f.backend.Adjust(classes.Holder{}, "", "slow"); err != nil || len(a) > 0 {
				t.Errorf("a container of the class gets %v, %v, which the kernel refuses", a, err)
			}

			target := container()
			target.Starting = true
			for _, class := range []string{"slow", "light"} {
				if err := f.backend.Enforce(t.Context(), target, "", class); err != nil {
					t.Errorf("enforce %s: %v", class, err)
				}
			}
			if seen, err := f.backend.Observe(t.Context(), container(), "light"); err != nil || seen.Class != "light" {
				t.Errorf("observed %+v, %v", seen, err)
			}
		})
	}
}
