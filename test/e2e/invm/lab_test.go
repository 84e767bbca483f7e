// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/qos-nri/qos-nri-plugin/test/lab"
)

// labDisk is the disk of the lab. The host limits it to a known speed.
const labDisk = "/dev/vdb"

// labClasses is the class file of the lab. The weights are of pod scope, because the kernel compares the weights of cgroups with the
// same parent.
const labClasses = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/blockio
  classes: [{name: throttled}]
  blockio:
    Classes:
      throttled: [{Devices: [/dev/vdb], ThrottleReadBps: 1M, ThrottleWriteBps: 1M, ThrottleReadIOPS: 40, ThrottleWriteIOPS: 40}]
- name: qos.noderesource.dev/pod-blockio
  scope: pod
  classes: [{name: heavy}, {name: light}, {name: prompt}]
  blockio:
    Classes:
      heavy: [{Weight: 1000}]
      light: [{Weight: 50}]
      prompt: [{Devices: [/dev/vdb], Latency: 10ms}]
`

// Names of the scenes' columns.
const (
	p50, p99       = "p50 (ms)", "p99 (ms)"
	perSecond      = "per second"
	neighboursRate = "neighbours (MB/s)"
)

// TestLab measures the effects of classes on a disk of known speed, and saves the results. Each measurement takes
// QOS_LAB_SECONDS.
func TestLab(t *testing.T) {
	n := startNode(t)
	t.Run("this machine", func(t *testing.T) { thisMachine(t, n.cgroupV2) })

	offerOwnClasses(t, n)
	writeClassFile(t, labClasses)
	n.startPlugin(t)
	t.Cleanup(func() { n.plugin.end(t, syscall.SIGTERM) })

	l := &laboratory{node: n, seconds: int(fromEnvironment(t, "QOS_LAB_SECONDS", 3))}
	t.Run("a reader beside two noisy neighbours", func(t *testing.T) { neighbours(t, l) })
	t.Run("buffered writes are limited with cgroup v2 only", func(t *testing.T) { bufferedWrites(t, l) })
	if n.cgroupV2 {
		t.Run("two databases on one disk", func(t *testing.T) { databases(t, l) })
	}
	if os.Getenv("QOS_LAB_SECONDS") != "" { // `make lab`; the seconds of a test are too few for these checks
		t.Run("how well a reader is protected", func(t *testing.T) { protection(t, l) })
	}
}

type laboratory struct {
	*node
	seconds int // of one measurement
}

// thisMachine runs the part of the lab that measures the machine that it runs on. The emulated CPU does not partition
// its cache or memory bandwidth, so the values for memory have no meaning.
func thisMachine(t *testing.T, cgroupV2 bool) {
	must(t, unix.Mount("resctrl", resctrlRoot, "resctrl", 0, ""))
	const dir = "/vols/machine"
	mountNew(t, labDisk, dir)
	defer func() { must(t, unix.Unmount(dir, 0)) }()
	before := standing(t)
	printed, err := output("lab", "-seconds", "3", "-dir", dir) // one second is too short on a busy host
	must(t, err)

	rows := []string{lab.Alone + " ", lab.NoClass + " ", lab.Throttled + " "}
	if cgroupV2 {
		rows = append(rows, "io.latency  ", "weights with iocost: this machine cannot show it: iocost is not enabled for vdb",
			"no classes ", "cache divided ", "and less memory bandwidth ")
	} else {
		rows = append(rows, "io.latency: this machine cannot show it: cgroup v1 has no io.latency",
			"cache divided: this machine cannot show it: this machine has no cgroup v2")
	}
	for _, row := range rows {
		if !strings.Contains(printed, "\n"+row) {
			t.Errorf("the output of the lab lacks the row %q:\n%s", row, printed)
		}
	}
	if diff := cmp.Diff(before, standing(t)); diff != "" {
		t.Errorf("the lab has left something behind (-before +after):\n%s", diff)
	}
	if files, err := filepath.Glob(dir + "/qos-lab-*"); err != nil || len(files) > 0 {
		t.Errorf("the lab has left the files %q behind: %v", files, err)
	}
	t.Log("\n" + printed)
}

// save saves a scene in the folder that the host reads.
func (l *laboratory) save(t *testing.T, s *lab.Scene) {
	t.Helper()
	dir := "/share/lab"
	must(t, os.MkdirAll(dir, 0o755))
	must(t, s.Save(dir))
	t.Log("\n" + s.Text())
}

// version returns the cgroup version.
func (l *laboratory) version() string { return map[bool]string{true: "v2", false: "v1"}[l.cgroupV2] }

// offerOwnClasses configures containerd with a block I/O class of its own, which has the limits of the plugin's class.
func offerOwnClasses(t *testing.T, n *node) {
	const file = "/etc/containerd/blockio.yaml"
	mustWrite(t, file, `
Classes:
  throttled: [{Devices: [/dev/vdb], ThrottleReadBps: 1M, ThrottleWriteBps: 1M, ThrottleReadIOPS: 40, ThrottleWriteIOPS: 40}]
`)
	config := n.kind.command[2] // containerd --config FILE
	mustWrite(t, config, mustRead(t, config)+"[plugins.\"io.containerd.service.v1.tasks-service\"]\nblockio_config_file = \""+file+"\"\n")
	n.stopRuntime(t)
	n.startRuntime(t)
}

// latencies runs one I/O operation after another in a container, and returns the median and the 99th percentile of their durations in
// milliseconds, and the number of operations a second.
func (l *laboratory) latencies(t *testing.T, c *container, kind, file string) []float64 {
	t.Helper()
	var count, p50, p99, all float64
	printed := c.exec(t, "latency", kind, file, strconv.Itoa(l.seconds))
	if _, err := fmt.Sscan(printed, &count, &p50, &p99, &all); err != nil {
		t.Fatalf("workload printed %q: %v", printed, err)
	}
	return []float64{p50 / 1e6, p99 / 1e6, count / all * 1e9}
}

// rate returns the growth of a counter per second while `f` runs.
func rate(t *testing.T, counter func() float64, f func()) float64 {
	t.Helper()
	before, start := counter(), time.Now()
	f()
	return (counter() - before) / time.Since(start).Seconds()
}

// ofDisk returns the numbers of bytes read from and written to the disk with this name, e.g. "vdb".
func ofDisk(t *testing.T, name string) (read, written float64) {
	t.Helper()
	const sector = 512
	fields := strings.Fields(mustRead(t, filepath.Join("/sys/block", name, "stat")))
	read, err := strconv.ParseFloat(fields[2], 64)
	must(t, err)
	written, err = strconv.ParseFloat(fields[6], 64)
	must(t, err)
	return read * sector, written * sector
}

// writtenBy returns the bytes that the kernel has accounted to a container, as writes to the disk with this number.
func (l *laboratory) writtenBy(t *testing.T, c *container, disk string) float64 {
	t.Helper()
	file, key := "io.stat", "wbytes="
	if !l.cgroupV2 {
		file, key = "blkio.throttle.io_service_bytes", "Write "
	}
	sum := 0.0
	for line := range strings.Lines(mustRead(t, filepath.Join(l.ioCgroup(c.cgroup()), file))) {
		number, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if value, err := valueAfter(rest, key); err == nil && number == disk {
			sum += value
		}
	}
	return sum
}

// assign changes the class of a container in each pod, as an administrator does. If the container name is empty, assign
// changes the classes of the pods themselves.
func assign(t *testing.T, container, request string, pods ...*pod) {
	t.Helper()
	var group errgroup.Group
	for _, p := range pods {
		group.Go(func() error {
			_, err := output("qos-nri-plugin", slices.DeleteFunc([]string{"update", p.name(), container, request}, func(s string) bool { return s == "" })...)
			return err
		})
	}
	must(t, group.Wait())
}

// start runs a pod with one container. If `critical` is true, the container has the CPU shares of a Guaranteed pod;
// otherwise it has those of a BestEffort pod.
func (l *laboratory) start(t *testing.T, name string, annotations map[string]string, critical bool, s spec) *container {
	t.Helper()
	s.name = "main"
	s.resources = &cri.LinuxContainerResources{CpuShares: map[bool]int64{true: 1024, false: 2}[critical], MemoryLimitInBytes: 256 << 20}
	return l.runPod(t, name, annotations).run(t, s)
}

// below checks a column of a scene: the value in one row must be at most a fraction of the value in the other row.
func below(t *testing.T, s *lab.Scene, column, row, other string, fraction float64) {
	t.Helper()
	got, than := s.Value(row, column), s.Value(other, column)
	if !(got <= fraction*than) { // also true if one of the values is missing (NaN)
		t.Errorf("%s, %s: %q has %.3g, want at most %.3g times the %.3g of %q", s.Title, column, row, got, fraction, than, other)
	}
}
