// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

func start() time.Time { return time.Unix(1_000_000, 0) }

func named(name string) reports.Container {
	return reports.Container{ID: "id-" + name, PodUID: "uid-" + name, Namespace: "ns", Pod: name, Name: "main"}
}

func series(measure, part string) classes.Series { return classes.Series{Measure: measure, Part: part} }

// TestAWindowHasRatesOfCountersAndValuesOfGauges has samples every 10 s. A point has the growth of a counter per second, and the
// value of a gauge, such as the memory, at its end.
func TestAWindowHasRatesOfCountersAndValuesOfGauges(t *testing.T) {
	r := history.NewRing(history.Budget)
	for i := range 4 {
		n := float64(i)
		reads := []history.Read{{Container: named("a"), Reading: classes.Reading{
			series(history.WrittenBytes, "sda"): 1000 + n*200, series(history.IOWaiting, ""): n * 2.5, series(history.Memory, ""): 7 + n,
		}}}
		if i >= 1 { // the first sample of b is sample 1, and its counter is not 0
			reads = append(reads, history.Read{Container: named("b"), Reading: classes.Reading{series(history.Reads, "sda"): 9000 + 30*max(0, n-2)}})
		}
		if i == 3 { // b uses sdb for the first time, so this counter was 0 before
			reads[1].Reading[series(history.Reads, "sdb")] = 20
		}
		r.Add(start().Add(time.Duration(i)*10*time.Second), reads)
	}
	r.Add(start(), nil) // is ignored: the clock was set back

	got := r.Window()
	// Point i is between the samples i and i+1. A container has values in the points from From to To-1, and 0 in the others.
	want := []history.Track{
		{Container: named("a"), From: 0, To: 3, Values: map[classes.Series][]float32{
			series(history.WrittenBytes, "sda"): {20, 20, 20}, series(history.IOWaiting, ""): {0.25, 0.25, 0.25}, series(history.Memory, ""): {8, 9, 10},
		}},
		{Container: named("b"), From: 1, To: 3, Values: map[classes.Series][]float32{
			series(history.Reads, "sda"): {0, 0, 3}, series(history.Reads, "sdb"): {0, 0, 2},
		}},
	}
	if diff := cmp.Diff(want, got.Tracks); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Points() != 3 {
		t.Errorf("%d points, want 3", got.Points())
	}
}

// TestACounterThatDecreasesOrAppearsCountsFromItsNextSample has a counter that decreases, and one that appears with a
// large value.
func TestACounterThatDecreasesOrAppearsCountsFromItsNextSample(t *testing.T) {
	r := history.NewRing(history.Budget)
	for i, value := range []float64{1000, 1050, 1049, 1059} {
		reading := classes.Reading{series(history.Reads, "sda"): value}
		if i > 0 {
			reading[series(history.Bandwidth, "0")] = 1e12 + float64(i)
		}
		r.Add(start().Add(time.Duration(i)*time.Second), []history.Read{{Container: named("a"), Reading: reading}})
	}
	want := map[classes.Series][]float32{series(history.Reads, "sda"): {50, 0, 10}, series(history.Bandwidth, "0"): {0, 1, 1}}
	if diff := cmp.Diff(want, r.Window().Tracks[0].Values); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSamplesThatLackAContainerDoNotRaiseItsRate leaves a container out of some samples. Its usage in this time is
// spread over these samples, also when the ring has removed some of them.
func TestSamplesThatLackAContainerDoNotRaiseItsRate(t *testing.T) {
	r := history.NewRing(history.Budget)
	lacks := func(i int) bool { return i%7 == 3 || i > 20 && i < 40 }
	for i := range 110 {
		var reads []history.Read
		if !lacks(i) {
			reads = []history.Read{{Container: named("a"), Reading: classes.Reading{
				series(history.IOWaiting, ""): 5 * float64(i), series(history.Memory, ""): 8,
			}}}
		}
		r.Add(start().Add(time.Duration(i)*10*time.Second), reads)
		w := r.Window()
		for _, track := range w.Tracks {
			for point := range track.To {
				waited, memory := track.Values[series(history.IOWaiting, "")], track.Values[series(history.Memory, "")]
				if len(waited) > 0 && (math.Abs(float64(waited[point])-0.5) > 1e-4 || math.Abs(float64(memory[point])-8) > 1e-4) {
					t.Fatalf("after sample %d, point %d has %v s of waiting a second and %v bytes, want 0.5 and 8", i, point, waited[point], memory[point])
				}
			}
		}
	}
}

// TestALongHistoryIsShownInCoarserPointsWithTheSameMean has 600 intervals of a second. A window has at most 120 points, so each covers five
// intervals.
func TestALongHistoryIsShownInCoarserPointsWithTheSameMean(t *testing.T) {
	r := history.NewRing(history.Budget)
	for i := range 601 {
		r.Add(start().Add(time.Duration(i)*time.Second), []history.Read{{Container: named("a"), Reading: classes.Reading{
			series(history.Reads, "sda"): float64(3 * i), series(history.Memory, ""): 5,
		}}})
	}
	w := r.Window()
	if w.Points() != 120 {
		t.Errorf("%d points, want 120", w.Points())
	}
	for i := range w.Points() {
		if reads, memory := w.Tracks[0].Values[series(history.Reads, "sda")][i], w.Tracks[0].Values[series(history.Memory, "")][i]; reads != 3 || memory != 5 {
			t.Fatalf("point %d has %v reads a second and %v bytes, want 3 and 5", i, reads, memory)
		}
	}
}

// busy returns the readings of containers that use two disks each. They have all series that are recorded, and no value
// is 0.
func busy(random *rand.Rand, totals []classes.Reading) (reads []history.Read) {
	for i := range totals {
		if totals[i] == nil {
			totals[i] = classes.Reading{}
		}
		for _, disk := range []string{"sda", "nvme0n1"} {
			for _, measure := range []string{history.ReadBytes, history.WrittenBytes} {
				totals[i][series(measure, disk)] += float64(random.IntN(400e6))
			}
			for _, measure := range []string{history.Reads, history.Writes} {
				totals[i][series(measure, disk)] += float64(random.IntN(4000))
			}
		}
		for _, measure := range []string{history.IOWaiting, history.MemoryWaiting, history.CPUWaiting, history.CPUUsed, history.Throttled} {
			totals[i][series(measure, "")] += 10 * random.Float64()
		}
		for _, measure := range []string{history.Refaults, history.HighEvents, history.MaxEvents} {
			totals[i][series(measure, "")] += float64(random.IntN(10000))
		}
		for _, cache := range []string{"0", "1"} {
			totals[i][series(history.Bandwidth, cache)] += float64(random.IntN(4e9))
			totals[i][series(history.Occupancy, cache)] = float64(random.IntN(32e6))
		}
		totals[i][series(history.Memory, "")] = float64(random.IntN(8e9))
		name := fmt.Sprintf("deployment-with-a-usual-name-5d8f9c7b6d-%05d", i)
		reads = append(reads, history.Read{
			Container: reports.Container{
				ID: fmt.Sprintf("%064d", i), PodUID: fmt.Sprintf("%036d", i), Namespace: "a-namespace", Pod: name, Name: "main",
			},
			Reading: totals[i],
		})
	}
	return reads
}

// TestFifteenMinutesOf500BusyContainersFitInTheMemoryOfTheHistory records at the interval that the documentation
// recommends.
func TestFifteenMinutesOf500BusyContainersFitInTheMemoryOfTheHistory(t *testing.T) {
	const containers, interval = 500, 15 * time.Second
	random, totals := rand.New(rand.NewPCG(1, 1)), make([]classes.Reading, containers)
	reads := busy(random, totals) // not counted
	before := reachable()
	r := history.NewRing(history.Budget)
	for i := range int(history.Keep/interval) + 10 {
		r.Add(start().Add(time.Duration(i)*interval), busy(random, totals))
	}
	used := reachable() - before
	w := r.Window()
	t.Logf("%d points of %d containers take %d KiB (by its own count %d KiB)", w.Points(), len(w.Tracks), used>>10, r.Bytes()>>10)
	if used > history.Budget || r.Bytes() > history.Budget {
		t.Errorf("the ring takes %d bytes, and by its own count %d, more than %d", used, r.Bytes(), history.Budget)
	}
	if w.Points() != int(history.Keep/interval) || len(w.Tracks) != containers {
		t.Errorf("the window has %d points of %d containers", w.Points(), len(w.Tracks))
	}
	runtime.KeepAlive(reads)
	runtime.KeepAlive(totals)
}

// TestTheHistoryStaysWithinItsMemoryWhileContainersStartAndEnd replaces all containers after each third sample.
func TestTheHistoryStaysWithinItsMemoryWhileContainersStartAndEnd(t *testing.T) {
	const budget = 256 << 10
	random := rand.New(rand.NewPCG(1, 2))
	r := history.NewRing(budget)
	for i := range 300 {
		reads := busy(random, make([]classes.Reading, 20))
		for j := range reads {
			reads[j].ID += fmt.Sprint(i / 3)
		}
		r.Add(start().Add(time.Duration(i)*time.Second), reads)
		if r.Bytes() > budget {
			t.Fatalf("sample %d: the ring takes %d bytes, more than %d", i, r.Bytes(), budget)
		}
	}
	if w := r.Window(); w.Points() < 5 {
		t.Errorf("%d points are kept, want at least 5", w.Points())
	}
}

// TestTheHistoryStaysWithinItsMemoryWithTooManyContainersOrDisks also checks the memory that the ring really takes.
func TestTheHistoryStaysWithinItsMemoryWithTooManyContainersOrDisks(t *testing.T) {
	const samples, leastPoints = 12, 9 // 10 samples always fit, and the points are between them
	for _, test := range []struct {
		name              string
		containers, disks int
	}{
		{name: "thousands of containers", containers: 6000},
		{name: "hundreds of disks", containers: 300, disks: 400},
		{name: "thousands of disks", containers: 20, disks: 3000},
	} {
		t.Run(test.name, func(t *testing.T) {
			random, totals := rand.New(rand.NewPCG(1, 3)), make([]classes.Reading, test.containers)
			read := func() []history.Read {
				reads := busy(random, totals)
				for i := range reads {
					for disk := range test.disks {
						reads[i].Reading[series(history.Reads, fmt.Sprint("disk", disk))] += float64(random.IntN(1e6))
					}
				}
				return reads
			}
			reads := read()
			before := reachable()
			r := history.NewRing(history.Budget)
			for i := range samples {
				reads = read()
				r.Add(start().Add(time.Duration(i)*time.Second), slices.Clone(reads))
				if r.Bytes() > history.Budget {
					t.Fatalf("sample %d: the ring takes %d bytes, more than %d", i, r.Bytes(), history.Budget)
				}
			}
			used := reachable() - before
			w := r.Window()
			t.Logf("%d points of %d containers, of which %d are incomplete, take %d KiB (by its own count %d KiB)", w.Points(), len(w.Tracks), w.Incomplete,
				used>>10, r.Bytes()>>10)
			if test.disks > 1000 && !slices.ContainsFunc(w.Tracks, func(track history.Track) bool { return track.Incomplete }) {
				t.Error("no container is marked as incomplete, although none can have all its disks")
			}
			if used > history.Budget {
				t.Errorf("the ring takes %d bytes, more than %d", used, history.Budget)
			}
			if w.Points() < leastPoints || w.Incomplete == 0 {
				t.Errorf("%d points, and %d incomplete containers; want at least %d points, and some incomplete containers", w.Points(), w.Incomplete, leastPoints)
			}
			runtime.KeepAlive(reads)
			runtime.KeepAlive(totals)
		})
	}
}

// TestNewContainersAreRecordedInPlaceOfEndedOnes replaces all containers after each fourth sample. The first sample of the new containers
// may lack some of them, because the ring still has the sample before it, with all ended containers.
func TestNewContainersAreRecordedInPlaceOfEndedOnes(t *testing.T) {
	const containers = 1200 // the ring has room for as many, but not for twice as many
	random := rand.New(rand.NewPCG(1, 4))
	r := history.NewRing(history.Budget)
	for i := range 12 {
		reads := busy(random, make([]classes.Reading, containers))
		for j := range reads {
			reads[j].ID += fmt.Sprint(i / 4)
		}
		r.Add(start().Add(time.Duration(i)*time.Second), reads)
		if w := r.Window(); w.Incomplete > 0 && i%4 > 0 {
			t.Errorf("sample %d: %d containers are left out", i, w.Incomplete)
		}
	}
}

// reachable returns the bytes of all reachable objects.
func reachable() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// files simulates the files of one cgroup.
type files map[string]string

func (f files) ReadFile(path string) ([]byte, error) {
	if text, has := f[path]; has {
		return []byte(text), nil
	}
	return nil, fs.ErrNotExist
}

func (f files) Readlink(path string) (string, error) {
	if path == "/sys/dev/block/8:0" {
		return "../../devices/x/block/sda", nil
	}
	return "", fs.ErrNotExist
}

func (f files) UnifiedDir(target classes.Holder) (string, error) {
	switch {
	case len(f) == 0:
		return "", errors.New("no cgroup")
	case target.Container == "":
		return "/pod", nil
	}
	return "/pod/c", nil
}

func (files) Unified() bool { return true }

// TestTheFilesOfACgroupAreRead also has a disk 9:9 without a name, which is left out. For the pod, only the events of its own
// limits count, which are in memory.events.local.
func TestTheFilesOfACgroupAreRead(t *testing.T) {
	host := files{
		"/pod/c/io.stat":           "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n9:9 rbytes=1 wbytes=1 rios=1 wios=1\n",
		"/pod/c/io.pressure":       "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
		"/pod/c/memory.pressure":   "some avg10=0.00 avg60=0.00 avg300=0.00 total=2\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
		"/pod/c/cpu.pressure":      "some avg10=0.00 avg60=0.00 avg300=0.00 total=3000000\n",
		"/pod/c/cpu.stat":          "usage_usec 2000000\nuser_usec 1\nnr_throttled 4\nthrottled_usec 500000\n",
		"/pod/c/memory.stat":       "anon 100\nfile 20\nworkingset_refault_anon 3\nworkingset_refault_file 4\n",
		"/pod/c/memory.events":     "low 0\nhigh 5\nmax 6\noom 0\n",
		"/pod/cpu.stat":            "usage_usec 3000000\nnr_throttled 9\nthrottled_usec 900000\n",
		"/pod/memory.events":       "low 0\nhigh 5\nmax 9\noom 0\n",
		"/pod/memory.events.local": "low 0\nhigh 1\nmax 3\noom 0\n",
	}
	got, err := history.NewCounters(host, host).Read(classes.Holder{Container: "main"})
	if err != nil {
		t.Fatal(err)
	}
	want := classes.Reading{
		series(history.ReadBytes, "sda"): 4096, series(history.WrittenBytes, "sda"): 8192, series(history.Reads, "sda"): 1, series(history.Writes, "sda"): 2,
		series(history.IOWaiting, ""): 1.5, series(history.MemoryWaiting, ""): 2e-6, series(history.CPUWaiting, ""): 3,
		series(history.CPUUsed, ""): 2, series(history.Throttled, ""): 0.5, series(history.Memory, ""): 120, series(history.Refaults, ""): 7,
		series(history.HighEvents, ""): 5, series(history.MaxEvents, ""): 6,
		series(history.CPUUsed, "pod"): 3, series(history.Throttled, "pod"): 0.9, series(history.HighEvents, "pod"): 1, series(history.MaxEvents, "pod"): 3,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAContainerWithoutACgroupCannotBeRead(t *testing.T) {
	if got, err := history.NewCounters(files{}, files{}).Read(classes.Holder{}); err == nil {
		t.Errorf("read %v, want an error", got)
	}
}

// TestValuesThatTheMeterHasMeasuredAreNotReadAgain uses files with other values than those that were measured. The history takes
// the measured values of I/O, except the stalled time, which it does not show. It does not take those of memory, which it reads from
// memory.stat. This cgroup lacks that file.
func TestValuesThatTheMeterHasMeasuredAreNotReadAgain(t *testing.T) {
	host := files{
		"/pod/c/io.stat": "8:0 rbytes=1 wbytes=1\n", "/pod/c/io.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
		"/pod/c/memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=3000000\n", "/pod/c/cpu.stat": "usage_usec 2000000\n",
	}
	io := classes.Reading{series(history.ReadBytes, "sda"): 4096, series(history.IOWaiting, ""): 1.5, series("pressure_io_stalled_seconds_total", ""): 1}
	memory := classes.Reading{series(history.Memory, ""): 100}
	got, err := history.NewCounters(host, host).Read(classes.Holder{Container: "main"}, io, memory)
	if err != nil {
		t.Fatal(err)
	}
	want := classes.Reading{
		series(history.ReadBytes, "sda"): 4096, series(history.IOWaiting, ""): 1.5, series(history.MemoryWaiting, ""): 3, series(history.CPUUsed, ""): 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
