// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// usage compares the reported usage of classes with the kernel's counters. The emulated CPU invents the counters of
// resctrl groups. The counters of block I/O are those of a container's cgroup, while the container runs and after its
// end.
func usage(t *testing.T, p *pod) {
	n := p.node
	t.Run("cache occupancy and memory bandwidth are those of the resctrl groups", func(t *testing.T) { groupUsage(t, n) })
	t.Run("block I/O is that of the containers, including ended ones", func(t *testing.T) { containerUsage(t, p) })
	if !n.cgroupV2 {
		t.Run("usage of a disk is not reported until the kernel counts it", func(t *testing.T) { uncounted(t, p) })
	}

	t.Run("qos-nri-plugin top shows the classes", func(t *testing.T) {
		eventually(t, "top shows all classes", func() error { // on a busy host, a measurement may lack classes
			printed, err := output("qos-nri-plugin", "top", "--once", "--interval", "1s")
			must(t, err)
			for _, want := range []string{"k8s.io/rdt  gold", "MEMORY/s", "k8s.io/blockio  throttled", "READ/s"} {
				if !strings.Contains(printed, want) {
					return fmt.Errorf("no %q in\n%s", want, printed)
				}
			}
			return nil
		})
	})
}

// usage returns messages that are measured after the call. The first message of a stream may have been measured before.
func (n *node) usage(t *testing.T, count int) (messages []*qos.WatchUsageResponse) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := n.api(t).WatchUsage(ctx, &qos.WatchUsageRequest{Interval: durationpb.New(time.Second)})
	must(t, err)
	for range count + 1 {
		message, err := stream.Recv()
		must(t, err)
		messages = append(messages, message)
	}
	return messages[1:]
}

// of returns a value of a class in a message, or -1 if there is none.
func of(t *testing.T, message *qos.WatchUsageResponse, resource, class, name, part string) float64 {
	t.Helper()
	for _, c := range message.GetClasses() {
		for _, m := range c.GetMeasurements() {
			if c.GetResource() == resource && c.GetClass() == class && m.GetName() == name && m.GetPart() == part {
				return m.GetValue()
			}
		}
	}
	t.Logf("the usage lacks %s of %s for class %q of %s", name, part, class, resource)
	return -1
}

// groupUsage reads the kernel's counters, gets two messages with the reported usage, and reads the counters again. The
// bandwidth counters grow all the time, so the reported growth must not exceed that of the counters. On a busy host, a
// read from resctrl takes long, and a message may lack values.
func groupUsage(t *testing.T, n *node) {
	names := map[string]string{"mbm_total_bytes": "memory_bandwidth_bytes_total", "mbm_local_bytes": "memory_bandwidth_local_bytes_total"}
	counter := func(class, cache, file string) float64 {
		value, err := counterIn(filepath.Join(resctrlRoot, groupOf(class)), cache, file)
		must(t, err)
		return value
	}

	eventually(t, "usage is that of the groups", func() error {
		before := map[string]float64{}
		for _, class := range []string{"gold", "silver", "bronze", ""} {
			for file := range names {
				before[class+file] = counter(class, "1", file)
			}
		}

		messages := n.usage(t, 2)
		first, last := messages[0], messages[1]
		for _, class := range []string{"gold", "silver", "bronze", ""} {
			if got, want := of(t, last, rdt, class, "llc_occupancy_bytes", "0"), counter(class, "0", "llc_occupancy"); got != want || want == 0 {
				return fmt.Errorf("class %q occupies %v bytes, want %v", class, got, want)
			}
			for file, name := range names {
				reported, grown := of(t, last, rdt, class, name, "1")-of(t, first, rdt, class, name, "1"), counter(class, "1", file)-before[class+file]
				if reported <= 0 || reported > grown {
					return fmt.Errorf("%s of class %q has grown by %v, but the kernel's counter by %v", name, class, reported, grown)
				}
			}
		}

		return nil
	})
}

// containerUsage compares the use of a disk by a class with the use by its container.
func containerUsage(t *testing.T, p *pod) {
	n := p.node
	before := n.ioOf(t, "throttled")
	c := p.run(t, spec{name: "limited", devices: []string{"/dev/vda"}})
	transfer := func() {
		c.exec(t, "io", "read", "/dev/vda", "1")
		c.exec(t, "io", "write", "/dev/vda", "1")
	}

	transfer()
	eventually(t, "the class has used what its container has used", func() error {
		return before.grownBy(c.io(t, "/dev/vda"), n.ioOf(t, "throttled"))
	})

	transfer()
	used := c.io(t, "/dev/vda")
	c.stop(t)
	total := n.ioOf(t, "throttled")
	if bySystemd() { // the cgroup is gone, and the waiting time of a pod is not exactly that of its container
		for _, usage := range []ioUsage{before, used} {
			maps.DeleteFunc(usage, func(measure string, _ float64) bool { return isPressure(measure) })
		}
	}
	if err := before.grownBy(used, total); err != nil {
		t.Errorf("after the end of its container: %v", err)
	}

	page := metrics(t)
	for measure, want := range total {
		labels := `class="throttled",device="vda",resource="k8s.io/blockio"`
		if isPressure(measure) {
			labels = `class="throttled",resource="k8s.io/blockio"`
		}
		if got, err := valueAfter(page, "\nqos_class_"+measure+"{"+labels+"} "); err != nil || got != want {
			t.Errorf("the metric of %s is %v, want %v: %v", measure, got, want, err)
		}
	}
}

// ioUsage is the use of a disk by a class or a container, by measure. The pressure includes all disks.
type ioUsage map[string]float64

// grownBy returns an error unless the usage of a class has grown by exactly the usage of its container.
func (before ioUsage) grownBy(container, later ioUsage) error {
	if len(container) != len(before) {
		return fmt.Errorf("the kernel counts %v for the container, want a value of each measure", container)
	}
	for measure, want := range container {
		// The kernel counts pressure in microseconds. The plugin adds seconds, and the sum has a rounding error.
		if got := math.Round(1e6*(later[measure]-before[measure])) / 1e6; got != want || want == 0 {
			return fmt.Errorf("%s of the class has grown by %v, but its container has %v", measure, got, want)
		}
	}
	return nil
}

// ioOf returns what the plugin reports for a class and the first disk. A measure that is not reported is 0.
func (n *node) ioOf(t *testing.T, class string) ioUsage {
	t.Helper()
	message, usage := n.usage(t, 1)[0], ioUsage{}
	for _, counter := range n.ioCounters("") {
		part := "vda"
		if isPressure(counter.measure) {
			part = ""
		}
		usage[counter.measure] = max(0, of(t, message, blockio, class, counter.measure, part))
	}
	return usage
}

// ioCounter is a counter in a file of a cgroup. The field `line` has the beginning of the counter's line, and the field `key`
// has the text that precedes the value in this line.
type ioCounter struct{ measure, file, line, key string }

func isPressure(measure string) bool { return strings.HasPrefix(measure, "pressure") }

// ioCounters returns the counters of a disk and of pressure. `disk` is the number of the disk.
func (n *node) ioCounters(disk string) []ioCounter {
	if !n.cgroupV2 {
		const bytes, operations = "blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_serviced_recursive"
		return []ioCounter{
			{"fs_reads_bytes_total", bytes, disk, "Read "}, {"fs_writes_bytes_total", bytes, disk, "Write "},
			{"fs_reads_total", operations, disk, "Read "}, {"fs_writes_total", operations, disk, "Write "},
		}
	}
	return []ioCounter{
		{"fs_reads_bytes_total", "io.stat", disk, "rbytes="}, {"fs_writes_bytes_total", "io.stat", disk, "wbytes="},
		{"fs_reads_total", "io.stat", disk, "rios="}, {"fs_writes_total", "io.stat", disk, "wios="},
		{"pressure_io_waiting_seconds_total", "io.pressure", "some", "total="},
		{"pressure_io_stalled_seconds_total", "io.pressure", "full", "total="},
	}
}

// io returns the kernel's counters for a container and a disk. It leaves out missing counters.
func (c *container) io(t *testing.T, disk string) ioUsage {
	t.Helper()
	usage := ioUsage{}
	for _, counter := range c.pod.node.ioCounters(deviceNumber(t, disk)) {
		text := mustRead(t, filepath.Join(c.pod.node.ioCgroup(c.cgroup()), counter.file))
		_, line, _ := strings.Cut(text, counter.line+" ")
		value, err := valueAfter(line, counter.key)
		if err == nil && isPressure(counter.measure) {
			value /= 1e6
		}
		if err == nil {
			usage[counter.measure] = value
		}
	}

	return usage
}

// uncounted: since Linux 6.10, cgroup v1 counts the I/O to a disk only after some cgroup has got a limit for the disk.
// Until then, the plugin reports nothing for the disk.
func uncounted(t *testing.T, p *pod) {
	n := p.node
	disk := loopDevice(t, "uncounted", 16<<20)
	n.reread(t) // the plugin finds the new disk
	c := p.run(t, spec{name: "weighed", devices: []string{disk}})
	reported := func() float64 {
		return of(t, n.usage(t, 1)[0], blockio, "weighted", "fs_reads_bytes_total", filepath.Base(disk))
	}

	c.exec(t, "io", "read", disk, "1")
	if kernel := c.io(t, disk); len(kernel) > 0 {
		t.Errorf("the kernel counts %v before any cgroup has a limit for the disk, want nothing", kernel)
	}

	if got := reported(); got != -1 {
		t.Errorf("%v bytes are reported, although the kernel does not count them", got)
	}

	other := n.ioCgroup("other")
	must(t, os.Mkdir(other, 0o755))
	t.Cleanup(func() { must(t, os.Remove(other)) })
	mustWrite(t, filepath.Join(other, "blkio.throttle.read_bps_device"), deviceNumber(t, disk)+" 1000000000")
	c.exec(t, "io", "read", disk, "1")
	want := c.io(t, disk)["fs_reads_bytes_total"]
	if got := reported(); got != want || want == 0 {
		t.Errorf("%v bytes are reported, but the kernel has counted %v", got, want)
	}
}

func metrics(t *testing.T) string {
	t.Helper()
	response, err := http.Get("http://127.0.0.1:9420/metrics")
	must(t, err)
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	must(t, err)
	return string(page)
}
