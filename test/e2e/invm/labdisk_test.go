// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/lab"
)

// neighbours measures a container that reads 4 KiB blocks, one after another, while two other containers read and write the same disk
// with eight threads each.
func neighbours(t *testing.T, l *laboratory) {
	s := &lab.Scene{
		Name: "neighbours-" + l.version(), Title: "A reader and two noisy neighbours on one disk, cgroup " + l.version(),
		Columns: []string{p50, p99, "reads " + perSecond, neighboursRate},
	}

	disk := []string{labDisk}
	reader := l.start(t, "reader", nil, true, spec{devices: disk})
	var noisy []*container
	measure := func(situation string) {
		var latencies []float64
		all := rate(t, func() float64 { read, written := ofDisk(t, "vdb"); return read + written }, func() {
			latencies = l.latencies(t, reader, "read", labDisk)
		})
		own := latencies[2] * 4096
		s.Add(situation, append(latencies, max(0, all-own)/1e6)...)
	}

	const alone, noClass, throttled, own = "alone", "with neighbours", "neighbours throttled", "throttled by containerd"
	measure(alone)

	noisy = l.startNoisy(t, "", nil)
	measure(noClass)
	pods := []*pod{noisy[0].pod, noisy[1].pod}
	assign(t, "main", "blockio=throttled", pods...)
	measure(throttled)
	assign(t, "main", "blockio=", pods...)
	for _, c := range noisy {
		wantLimits(t, l.limits(t, c.cgroup()), ioLimits{})
	}

	weighted := l.byWeights(t, measure, reader.pod, pods)
	for _, p := range pods {
		p.remove(t)
	}

	noisy = l.startNoisy(t, "-own", map[string]string{"blockio.resources.beta.kubernetes.io/pod": "throttled"})
	measure(own)
	for _, c := range append(noisy, reader) {
		c.pod.remove(t)
	}

	l.save(t, s)

	for _, better := range append(weighted, throttled, own) {
		below(t, s, p50, better, noClass, 0.6)
	}

	if got := s.Value(throttled, neighboursRate); got > 2*1.2 {
		t.Errorf("throttled neighbours transfer %.3g MB/s, want at most 2 plus 20%%", got)
	}
}

// startNoisy starts two containers that read and write the disk with eight threads each.
func (l *laboratory) startNoisy(t *testing.T, suffix string, annotations map[string]string) (noisy []*container) {
	for _, kind := range []string{"read", "write"} {
		args := []string{"load", kind, labDisk, "8"}
		noisy = append(noisy, l.start(t, kind+suffix, annotations, false, spec{devices: []string{labDisk}, args: args}))
	}
	return noisy
}

// byWeights measures the reader with a high weight and its neighbours with a low weight, and returns the names of the
// two measurements. With cgroup v1 it measures nothing, because classes of pod scope need cgroup v2.
func (l *laboratory) byWeights(t *testing.T, measure func(string), reader *pod, noisy []*pod) []string {
	if !l.cgroupV2 {
		return nil
	}

	const bfq, iocost = "weights, bfq", "weights, iocost"
	initial := l.schedule(t, "bfq")
	l.waitWeights(t, true)
	assign(t, "", podBlockio+"=heavy", reader)
	assign(t, "", podBlockio+"=light", noisy...)
	measure(bfq)
	l.schedule(t, initial)
	l.waitWeights(t, false)

	l.setCost(t, true)
	l.waitWeights(t, true)
	assign(t, "", podBlockio+"=heavy", reader)
	assign(t, "", podBlockio+"=light", noisy...)
	measure(iocost)
	l.setCost(t, false)
	return []string{bfq, iocost}
}

// setCost enables or disables iocost for the disk. The model is nine tenths of the speed that the host gives to the
// disk. So requests wait in the kernel, where weights apply, and not in the disk.
func (l *laboratory) setCost(t *testing.T, enable bool) {
	t.Helper()
	number := deviceNumber(t, labDisk)
	iops, err := strconv.Atoi(os.Getenv("QOS_LAB_IOPS"))
	must(t, err)
	bps, err := strconv.Atoi(os.Getenv("QOS_LAB_BPS"))
	must(t, err)
	mustWrite(t, "/sys/fs/cgroup/io.cost.model", fmt.Sprintf("%s ctrl=user model=linear rbps=%[2]d rseqiops=%[3]d rrandiops=%[3]d wbps=%[2]d "+
		"wseqiops=%[3]d wrandiops=%[3]d", number, bps, iops))
	mustWrite(t, "/sys/fs/cgroup/io.cost.qos", fmt.Sprintf("%s enable=%d ctrl=user rpct=0 rlat=10000 wpct=0 wlat=10000 min=90 max=90",
		number, map[bool]int{true: 1, false: 0}[enable]))
	l.reread(t)
}

func (l *laboratory) waitWeights(t *testing.T, want bool) {
	t.Helper()
	eventually(t, "the status says whether weights are effective", func() error {
		if condition := l.condition(t, podBlockio, "WeightsEffective"); condition == nil || condition.GetHealthy() != want {
			return fmt.Errorf("weights are not yet reported as effective: %v", want)
		}
		return nil
	})
}

// bufferedWrites measures a container that reads the disk, as neighbours does, beside a container that writes into the
// page cache and never waits for the disk. The kernel writes the pages later. With cgroup v2 it accounts these writes to
// the container, so that the container's limits apply to them.
func bufferedWrites(t *testing.T, l *laboratory) {
	const toDisk, accounted = "written (MB/s)", "of these accounted (%)"
	s := &lab.Scene{
		Name: "buffered-" + l.version(), Title: "A reader beside buffered writes, cgroup " + l.version(), Columns: []string{p50, p99, toDisk, accounted},
	}

	// With these settings, the kernel starts to write pages early, as on a busy machine.
	mustWrite(t, "/proc/sys/vm/dirty_background_bytes", strconv.Itoa(4<<20))
	mustWrite(t, "/proc/sys/vm/dirty_bytes", strconv.Itoa(8<<20))
	disk := mountNew(t, labDisk, "/vols/buffered")
	reader := l.start(t, "reads", nil, true, spec{devices: []string{labDisk}})
	writer := l.start(t, "writes", nil, false, spec{
		args: []string{"load", "buffered", "/data/file", "1"}, mounts: []*cri.Mount{{ContainerPath: "/data", HostPath: "/vols/buffered"}},
	})

	measure := func(situation string) {
		var latencies []float64
		var own float64
		all := rate(t, func() float64 { _, written := ofDisk(t, "vdb"); return written }, func() {
			own = rate(t, func() float64 { return l.writtenBy(t, writer, disk) }, func() {
				latencies = l.latencies(t, reader, "read", labDisk)
			})
		})
		s.Add(situation, latencies[0], latencies[1], all/1e6, min(100, 100*own/all))
	}

	const free, limited = "no limit", "limited to 1 MB/s"
	eventually(t, "the kernel writes pages", func() error {
		if _, written := ofDisk(t, "vdb"); written < 64<<20 {
			return fmt.Errorf("%.3g bytes were written", written)
		}
		return nil
	})

	measure(free)
	assign(t, "main", "blockio=throttled", writer.pod)
	measure(limited)
	assign(t, "main", "blockio=", writer.pod)
	for _, c := range []*container{reader, writer} {
		c.pod.remove(t)
	}

	must(t, unix.Unmount("/vols/buffered", 0))
	l.save(t, s)

	if l.cgroupV2 {
		below(t, s, toDisk, limited, free, 0.4)
	} else if got := s.Value(limited, toDisk); got < 2 {
		t.Errorf("with cgroup v1, a limit now applies to buffered writes: %.3g MB/s are written. Change the docs", got)
	}
}

// databases measures the commits of a database: alone, beside another database on the same disk, and after the claim of
// the other database has got a class. Each database has a volume of its own.
func databases(t *testing.T, l *laboratory) {
	const commits = "commits " + perSecond
	s := &lab.Scene{
		Name: "databases", Title: "Two databases on one disk, each with a volume", Columns: []string{p50, p99, commits, "the other (MB/s)"},
	}

	first, second := l.volumeOnLabDisk(t, 0), l.volumeOnLabDisk(t, 1)
	main := l.start(t, "database", nil, true, spec{mounts: []*cri.Mount{{ContainerPath: "/data", HostPath: first}}})
	device, err := filepath.EvalSymlinks("/sys/dev/block/" + numberOf(t, second))
	must(t, err)
	measure := func(situation string) {
		var latencies []float64
		bytes := rate(t, func() float64 { _, written := ofDisk(t, path.Base(device)); return written }, func() {
			latencies = l.latencies(t, main, "commit", "/data/file")
		})
		s.Add(situation, append(latencies, bytes/1e6)...)
	}

	const alone, both, limited = "alone", "beside the other", "the other's claim has a class"
	measure(alone)
	other := l.start(t, "other", nil, false, spec{
		args: []string{"load", "commit", "/data/file", "8"}, mounts: []*cri.Mount{{ContainerPath: "/data", HostPath: second}},
	})

	// The other database first writes its file of 16 MiB.
	eventually(t, "the other database commits", func() error {
		if _, written := ofDisk(t, path.Base(device)); written < 20<<20 {
			return fmt.Errorf("%.3g bytes were written", written)
		}
		return nil
	})

	measure(both)
	// This is the call with which the publisher of the node brings the classes of claims to the plugin.
	_, err = l.api(t).SetVolumeClaims(requestContext(t), &qos.SetVolumeClaimsRequest{
		Classes: []*qos.VolumeClass{{Name: "silver", MaxWriteIops: 40}},
		Volumes: []*qos.ClaimedVolume{{PodUid: other.pod.config.Metadata.Uid, Container: "main", Path: "/data", Claim: "default/other", Class: "silver"}},
	})

	must(t, err)
	eventually(t, "the limit of the claim is in force", func() error {
		return l.hasLimits(t, other.pod.cgroup(), ioLimits{numberOf(t, second): {"wiops": "40"}})
	})

	measure(limited)
	other.pod.remove(t)
	main.pod.remove(t)
	for _, dir := range []string{first, second} {
		must(t, unix.Unmount(dir, 0))
	}

	l.save(t, s)
	below(t, s, commits, both, limited, 0.6)
}

// volumeOnLabDisk mounts one half of the lab's disk, as a logical volume, until the end of the test.
func (l *laboratory) volumeOnLabDisk(t *testing.T, half int) (dir string) {
	t.Helper()
	const size = 96 << 20
	dir = fmt.Sprint("/vols/half", half)
	mountNew(t, mapDisk(t, filepath.Base(dir), labDisk, half*size, size), dir)
	return dir
}
