// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// ioLimits maps each disk, as deviceNumber returns it, to the throttles of a cgroup, e.g. "rbps" and "wbps".
type ioLimits map[string]map[string]string

// limitFiles maps each file that contains throttles to the name of its throttle. The name is empty for io.max, which
// has all throttles.
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

// add adds the throttles in the content of a file. The file is io.max, or a file of cgroup v1 that has only one throttle,
// whose name is the parameter `key`. The value "max" is no limit and is left out.
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

// hasLimits returns an error if the throttles of a cgroup differ from `want`.
func (n *node) hasLimits(t testing.TB, cgroup string, want ioLimits) error {
	t.Helper()
	if got := n.limits(t, cgroup); fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("throttles %v, want %v", got, want)
	}
	return nil
}

// throttled returns the limits of the class throttled in classFile.
func throttled(t testing.TB) ioLimits {
	return ioLimits{
		deviceNumber(t, "/dev/vda"): {"rbps": "2000000", "wbps": "1000000"},
		deviceNumber(t, "/dev/vdb"): {"rbps": "1000000", "wbps": "2000000"},
	}
}

// throttles: a container reads its throttles in its first instructions, and these are the limits of its class. Then
// I/O is not faster than the limits.
func throttles(t *testing.T, p *pod) {
	n, file := p.node, "io.max"
	if !n.cgroupV2 {
		file = "blkio/blkio.throttle.read_bps_device"
	}

	c := p.run(t, spec{name: "limited", args: []string{"show", "/sys/fs/cgroup/" + file}, devices: []string{"/dev/vda", "/dev/vdb"}})
	atStart := ioLimits{}
	atStart.add("rbps", c.printed(t))
	want := throttled(t)
	if !n.cgroupV2 {
		for _, limits := range want {
			delete(limits, "wbps") // the throttle wbps is in another file
		}
	}

	wantLimits(t, atStart, want)
	wantLimits(t, n.limits(t, c.cgroup()), throttled(t))
	if n.machine()&containerd == 0 {
		return // what the kernel does with the limits does not depend on the runtime
	}

	t.Run("direct reads and writes on two disks are no faster than the class says", func(t *testing.T) { throughput(t, c) })
}

// throughput checks that reads and writes are not faster than the limits. They may be slower, because a busy host makes
// a VM slower; the caller has compared the limits in the kernel with those of the class. It leaves out a limit if the
// disk is too slow to reach it.
func throughput(t *testing.T, c *container) {
	var limits []limit
	for _, l := range []limit{{"read", "/dev/vda", 2e6}, {"write", "/dev/vda", 1e6}, {"read", "/dev/vdb", 1e6}, {"write", "/dev/vdb", 2e6}} {
		printed, err := output("workload", "io", l.direction, l.disk, "1")
		must(t, err)
		if rate := bytesPerSecond(t, printed); rate > 1.5*l.want {
			limits = append(limits, l)
		} else {
			t.Logf("%s of %s without a limit: %.3g B/s, too slow to see a limit of %.3g", l.direction, l.disk, rate, l.want)
		}
	}

	if len(limits) == 0 {
		t.Skip("this busy host makes the VM's disks slower than the limits")
	}

	var measured sync.WaitGroup
	for _, l := range limits {
		measured.Go(func() { l.measure(t, c, 8) })
	}

	measured.Wait()
}

// limit is a limit in bytes a second.
type limit struct {
	direction, disk string
	want            float64
}

// measure does I/O for some seconds, checks that it is not faster than the limit, and returns its rate. I/O can be slower,
// because the host may be busy.
func (l limit) measure(t testing.TB, c *container, seconds int) (rate float64) {
	t.Helper()
	rate = bytesPerSecond(t, c.exec(t, "io", l.direction, l.disk, strconv.Itoa(seconds)))
	t.Logf("%s of %s: %.3g B/s under a limit of %.3g", l.direction, l.disk, rate, l.want)
	if rate > 1.2*l.want {
		t.Errorf("%s of %s: %.3g B/s, want at most %.3g plus 20%%", l.direction, l.disk, rate, l.want)
	}
	return rate
}

// bytesPerSecond parses the output of "workload io".
func bytesPerSecond(t testing.TB, printed string) float64 {
	t.Helper()
	var bytes, nanoseconds float64
	if _, err := fmt.Sscan(printed, &bytes, &nanoseconds); err != nil {
		t.Errorf("workload printed %q: %v", printed, err)
		return 0
	}
	return bytes / nanoseconds * 1e9
}

const podBlockio = "qos.noderesource.dev/pod-blockio"

// podScope: with cgroup v2, the class of a pod limits the pod's cgroup, and the pod has a slot of the class until its
// sandbox stops. With cgroup v1, the class is refused.
func podScope(t *testing.T, n *node) {
	if !n.cgroupV2 {
		_, err := n.tryPod(t, "scope", map[string]string{podKey: podBlockio + "=slow"})
		wantRefusal(t, err, n.kind.podRefused+`pod default/scope: class "slow" of qos.noderesource.dev/pod-blockio is unavailable on this node: `+
			`cgroup v1 does not apply the limits of a pod's cgroup to the pod's containers; use cgroup v2, or container scope `+
			`(requested by annotation qos.noderesource.dev/pod)`)
		return
	}

	p := n.runPod(t, "scope", map[string]string{podKey: podBlockio + "=slow"})
	wantLimits(t, n.limits(t, p.cgroup()), ioLimits{deviceNumber(t, "/dev/vda"): {"rbps": "3000000"}})
	n.wantAssignment(t, p, "", &qos.Assignment{Name: podBlockio, Class: "slow", Source: qos.Source_SOURCE_POD, RequestedBy: podKey})
	_, err := n.tryPod(t, "scope-unknown", map[string]string{podKey: podBlockio + "=fast"})
	wantRefusal(t, err, n.kind.podRefused+`pod default/scope-unknown: class "fast" of qos.noderesource.dev/pod-blockio does not exist on this node; `+
		`available: slow, slower (requested by annotation qos.noderesource.dev/pod)`)
	n.wantPodClasses(t, "slow 1", "slower 0")

	slow := map[string]string{podKey: podBlockio + "=slow"}
	_, err = n.tryPod(t, "scope-full", slow)
	wantRefusal(t, err, n.kind.podRefused+`pod default/scope-full: class "slow" of qos.noderesource.dev/pod-blockio is full: 1 of 1 in use; `+
		`available: slower`)
	_, err = n.runtime.StopPodSandbox(requestContext(t), &cri.StopPodSandboxRequest{PodSandboxId: p.id})
	must(t, err)
	n.wantPodClasses(t, "slow 0", "slower 0")
	n.runPod(t, "scope-next", slow)
	n.wantPodClasses(t, "slow 1", "slower 0")
}

// wantPodClasses checks by how many pods each class of pod scope is in use. An item of `want` is "CLASS NUMBER".
func (n *node) wantPodClasses(t testing.TB, want ...string) {
	t.Helper()
	var inUse []string
	for _, offer := range n.status(t).GetResources().GetPodQosResources() {
		for _, class := range offer.GetClasses() {
			inUse = append(inUse, fmt.Sprint(class.GetName(), " ", class.GetInUse()))
		}
	}
	if !slices.Equal(inUse, want) {
		t.Errorf("the classes of pod scope, with the number of pods that use them, are %q, want %q", inUse, want)
	}
}
