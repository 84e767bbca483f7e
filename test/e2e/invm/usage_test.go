// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// usage compares what is reported for classes with the counters in the kernel: those of resctrl groups, which the emulated CPU makes up,
// and those of the cgroup of a container, which then ends.
func usage(t *testing.T, p *pod) {
	n := p.node
	t.Run("cache occupancy and memory bandwidth are those of the resctrl groups", func(t *testing.T) { groupUsage(t, n) })
	t.Run("block I/O is that of the containers, including ended ones", func(t *testing.T) { containerUsage(t, p) })
	t.Run("top shows the classes", func(t *testing.T) {
		eventually(t, "top shows all classes", func() error { // on a busy host, a measurement may lack classes
			printed, err := output("qos-nri-plugin", "top", "--once", "--interval", "1s")
			must(t, err)
			for _, want := range []string{"k8s.io/rdt      gold", "MEMORY/s", "k8s.io/blockio  throttled", "READ/s"} {
				if !strings.Contains(strings.ReplaceAll(printed, "k8s.io/rdt  ", "k8s.io/rdt      "), want) {
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

// groupUsage measures twice between two readings of all counters, which grow all the time. On a busy host, a read from resctrl takes
// long, and a message may lack values.
func groupUsage(t *testing.T, n *node) {
	const rdt = "k8s.io/rdt"
	names := map[string]string{"mbm_total_bytes": "memory_bandwidth_bytes_total", "mbm_local_bytes": "memory_bandwidth_local_bytes_total"}
	counter := func(class, cache, file string) float64 {
		text := mustRead(t, filepath.Join(resctrlRoot, groupOf(class), "mon_data/mon_L3_0"+cache, file))
		value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
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

func containerUsage(t *testing.T, p *pod) {
	const class, name = "throttled", "fs_reads_bytes_total"
	used := func() float64 {
		return max(0, of(t, p.node.usage(t, 1)[0], "k8s.io/blockio", class, name, "vda"))
	}
	before := used()
	c := p.run(t, spec{name: "limited", devices: []string{"/dev/vda"}})
	c.exec(t, "io", "read", "/dev/vda", "1")
	read := c.readBytes(t, "/dev/vda")
	if got := used() - before; got != read || read == 0 {
		t.Errorf("the class has read %v bytes, but its container %v", got, read)
	}

	c.exec(t, "io", "read", "/dev/vda", "1")
	read = c.readBytes(t, "/dev/vda")
	c.stop(t)
	total := used()
	if got := total - before; got != read {
		t.Errorf("after the end of its container, the class has read %v bytes, want %v", got, read)
	}
	metric := fmt.Sprintf(`qos_class_%s{class=%q,device="vda",resource="k8s.io/blockio"} %s`, name, class, strconv.FormatFloat(total, 'g', -1, 64))
	if page := metrics(t); !strings.Contains(page, "\n"+metric+"\n") {
		t.Errorf("no metric %s", metric)
	}
}

// readBytes returns how many bytes of a disk the kernel has counted for a container.
func (c *container) readBytes(t *testing.T, disk string) float64 {
	t.Helper()
	file, before, after := "io.stat", " rbytes=", " "
	if !c.pod.node.cgroupV2 {
		file, before, after = "blkio.throttle.io_service_bytes_recursive", " Read ", "\n"
	}
	text := mustRead(t, filepath.Join(c.pod.node.ioCgroup(c.cgroup()), file))
	_, rest, _ := strings.Cut(text, deviceNumber(t, disk)+before)
	number, _, _ := strings.Cut(rest, after)
	bytes, err := strconv.ParseFloat(number, 64)
	if err != nil {
		t.Fatalf("%s has no bytes of %s: %q", file, disk, text)
	}
	return bytes
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
