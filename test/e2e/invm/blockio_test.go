// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// ioLimits are throttles of a cgroup: "rbps", "wbps" by disk, as deviceNumber names it.
type ioLimits map[string]map[string]string

// limitFiles are the files with throttles, and on cgroup v1 which throttle each has.
func (n *node) limitFiles() map[string]string {
	if n.cgroupV2 {
		return map[string]string{"io.max": ""}
	}
	return map[string]string{
		"blkio.throttle.read_bps_device": "rbps", "blkio.throttle.write_bps_device": "wbps",
		"blkio.throttle.read_iops_device": "riops", "blkio.throttle.write_iops_device": "wiops",
	}
}

// limits reads the throttles of a cgroup.
func (n *node) limits(t testing.TB, cgroup string) ioLimits {
	t.Helper()
	limits := ioLimits{}
	for file, key := range n.limitFiles() {
		limits.add(key, mustRead(t, filepath.Join(n.ioCgroup(cgroup), file)))
	}
	return limits
}

// add takes over the content of a file: io.max, or one of cgroup v1 with a throttle of this key. Values that do not limit are left out.
func (l ioLimits) add(key, content string) {
	for _, line := range strings.Split(strings.TrimSpace(content), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		for _, field := range fields[1:] {
			name, value, found := strings.Cut(field, "=")
			if !found {
				name, value = key, field
			}
			if value == "max" {
				continue
			}
			if l[fields[0]] == nil {
				l[fields[0]] = map[string]string{}
			}
			l[fields[0]][name] = value
		}
	}
}

func wantLimits(t testing.TB, got, want ioLimits) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("throttles %v, want %v", got, want)
	}
}

func throttled(t testing.TB) ioLimits {
	return ioLimits{
		deviceNumber(t, "/dev/vda"): {"rbps": "4000000", "wbps": "2000000"},
		deviceNumber(t, "/dev/vdb"): {"rbps": "2000000", "wbps": "4000000"},
	}
}

func limitsBeforeFirstInstruction(t *testing.T, n *node) {
	p := n.runPod(t, "first", map[string]string{"container.qos.noderesource.dev/main": "blockio=throttled"})
	files := []string{"io.max"}
	if !n.cgroupV2 {
		files = []string{"blkio/blkio.throttle.read_bps_device"}
	}
	c := p.run(t, spec{name: "main", args: []string{"show", "/sys/fs/cgroup/" + files[0]}})
	printed, atStart := ioLimits{}, throttled(t)
	printed.add("rbps", c.printed(t))
	if !n.cgroupV2 {
		for _, limits := range atStart {
			delete(limits, "wbps")
		}
	}
	wantLimits(t, printed, atStart)
	wantLimits(t, n.limits(t, c.cgroup()), throttled(t))
}

func throughput(t *testing.T, n *node) {
	disks := []string{"/dev/vda", "/dev/vdb"}
	p := n.runPod(t, "io", map[string]string{"container.qos.noderesource.dev/limited": "blockio=throttled"})
	free := p.run(t, spec{name: "free", devices: disks})
	limited := p.run(t, spec{name: "limited", devices: disks})
	limits := []struct {
		direction, disk string
		want            float64 // bytes a second
	}{{"read", "/dev/vda", 4e6}, {"write", "/dev/vda", 2e6}, {"read", "/dev/vdb", 2e6}, {"write", "/dev/vdb", 4e6}}

	for _, l := range limits {
		if rate := free.transfer(t, l.direction, l.disk, time.Second); rate < 1.5*l.want {
			t.Fatalf("%s of %s without a limit: %.2g B/s, too slow to see a limit of %.2g", l.direction, l.disk, rate, l.want)
		}
	}
	var measured sync.WaitGroup
	for _, l := range limits {
		measured.Go(func() {
			rate := limited.transfer(t, l.direction, l.disk, 8*time.Second)
			t.Logf("%s of %s: %.3g B/s under a limit of %.3g", l.direction, l.disk, rate, l.want)
			if rate < 0.8*l.want || rate > 1.2*l.want {
				t.Errorf("%s of %s: %.3g B/s, want %.3g within 20%%", l.direction, l.disk, rate, l.want)
			}
		})
	}
	measured.Wait()
}

// transfer does direct I/O from within the container and returns bytes a second.
func (c *container) transfer(t testing.TB, direction, disk string, length time.Duration) float64 {
	t.Helper()
	printed := c.exec(t, "io", direction, disk, fmt.Sprint(int(length.Seconds())))
	var bytes, nanoseconds float64
	if _, err := fmt.Sscan(printed, &bytes, &nanoseconds); err != nil {
		t.Errorf("workload printed %q: %v", printed, err)
		return 0
	}
	return bytes / nanoseconds * 1e9
}

func podScope(t *testing.T, n *node) {
	const resource = "qos.noderesource.dev/pod-blockio"
	p := n.runPod(t, "scope", map[string]string{"qos.noderesource.dev/pod": resource + "=slow"})
	wantLimits(t, n.limits(t, p.cgroup()), ioLimits{deviceNumber(t, "/dev/vda"): {"rbps": "3000000"}})
	n.wantAssignment(t, p, "", &qos.Assignment{
		Name: resource, Class: "slow", Source: qos.Source_SOURCE_POD, RequestedBy: "qos.noderesource.dev/pod",
	})
	if _, err := n.tryPod(t, "scope-unknown", map[string]string{"qos.noderesource.dev/pod": resource + "=fast"}); err == nil {
		t.Error("a pod got an unknown class")
	} else {
		wantRefusal(t, err, `pod default/scope-unknown: class "fast" of qos.noderesource.dev/pod-blockio`, "available: slow")
	}
	classes := []string{}
	for _, offer := range n.status(t).GetResources().GetPodQosResources() {
		for _, class := range offer.GetClasses() {
			classes = append(classes, fmt.Sprint(class.GetName(), " ", class.GetInUse()))
		}
	}
	if !slices.Equal(classes, []string{"slow 1"}) {
		t.Errorf("classes of pod scope in use: %q", classes)
	}
}
