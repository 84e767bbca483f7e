// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"context"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeDisk does a limited number of operations and of bytes a second, one request after another, as QEMU limits a disk.
type fakeDisk struct {
	size     int64
	iops     float64
	bps      float64
	mu       sync.Mutex // guards the fields up to failures
	free     time.Time  // when the disk has finished all requests
	written  int64      // the number of writes
	highest  int64      // the end of the last byte that was used
	failures int        // the number of requests that fail
	// busy is the factor by which the disk is slower for two seconds of each four.
	busy float64
}

func (d *fakeDisk) request(n int, offset int64) error {
	d.mu.Lock()
	if d.failures > 0 {
		d.failures--
		d.mu.Unlock()
		return io.ErrUnexpectedEOF
	}
	if offset+int64(n) > d.size || offset < 0 {
		d.mu.Unlock()
		return io.EOF
	}
	d.highest = max(d.highest, offset+int64(n))
	seconds := max(1/d.iops, float64(n)/d.bps)
	now := time.Now()
	if d.busy > 0 && now.Second()%4 > 1 {
		seconds *= d.busy
	}
	if d.free.Before(now) {
		d.free = now
	}
	d.free = d.free.Add(time.Duration(seconds * float64(time.Second)))
	timer := time.NewTimer(time.Until(d.free))
	d.mu.Unlock()
	<-timer.C
	return nil
}

func (d *fakeDisk) ReadAt(data []byte, offset int64) (int, error) {
	return len(data), d.request(len(data), offset)
}

func (d *fakeDisk) WriteAt(data []byte, offset int64) (int, error) {
	d.mu.Lock()
	d.written++
	d.mu.Unlock()
	return len(data), d.request(len(data), offset)
}

// These are the values of boolean parameters: whether a disk has rotation, and whether writes are measured.
const (
	ssd, hdd              = false, true
	readsOnly, withWrites = false, true
)

func options(write bool) Options {
	return Options{Duration: 10 * time.Second, Depth: 16, Write: write, Progress: func(Progress) {}}
}

// wantAbout checks that a number differs from the wanted one by at most a part of it.
func wantAbout(t *testing.T, what string, got, want uint64, part float64) {
	t.Helper()
	if math.Abs(float64(got)-float64(want)) > part*float64(want) {
		t.Errorf("%s is %d, want about %d", what, got, want)
	}
}

func TestTheModelAndTheTargetsComeFromTheSpeedOfTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &fakeDisk{size: 256 << 20, iops: 400, bps: 16 << 20}
		got, err := measure(t.Context(), disk, disk.size, ssd, options(withWrites))
		must(t, err)
		for _, key := range []string{"rbps", "wbps"} {
			wantAbout(t, key, got.Model[key], 16<<20, 0.05)
		}
		for _, key := range []string{"rseqiops", "rrandiops", "wseqiops", "wrandiops"} {
			wantAbout(t, key, got.Model[key], 400, 0.05)
		}
		// At nine tenths of its speed, the disk finishes each request in 2.5 ms. The target is 1.5 times that.
		wantAbout(t, "rlat", got.QoS["rlat"], 3750, 0.05)
		// These values are the same for each SSD: the percentile of the targets, and the limits of the speed in percent.
		if got.QoS["rpct"] != 95 || got.QoS["wpct"] != 95 || got.QoS["min"] != 60 || got.QoS["max"] != 100 {
			t.Errorf("the quality of service is %v", got.QoS)
		}
	})
}

func TestWithoutWriteNothingIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &fakeDisk{size: 256 << 20, iops: 400, bps: 16 << 20}
		got, err := measure(t.Context(), disk, disk.size, hdd, options(readsOnly))
		must(t, err)
		if disk.written > 0 || len(got.Model) != 3 || got.QoS["wlat"] != 0 {
			t.Errorf("%d writes, and the result is %v; want none, and only the 3 values of reads", disk.written, got)
		}
	})
}

// TestTheTargetOfADiskWithRotationIsForTheMedian: without rotation, it is for 95% of the requests.
func TestTheTargetOfADiskWithRotationIsForTheMedian(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &fakeDisk{size: 256 << 20, iops: 400, bps: 16 << 20}
		got, err := measure(t.Context(), disk, disk.size, hdd, options(readsOnly))
		must(t, err)
		if got.QoS["rpct"] != 50 {
			t.Errorf("rpct is %d, want 50", got.QoS["rpct"])
		}
	})
}

// TestReadsStayInTheWrittenPartOfADiskWithoutRotation: on a disk with rotation, they use the whole disk, because its head has to move.
func TestReadsStayInTheWrittenPartOfADiskWithoutRotation(t *testing.T) {
	for _, rotational := range []bool{ssd, hdd} {
		synctest.Test(t, func(t *testing.T) {
			disk := &fakeDisk{size: 4 << 30, iops: 400, bps: 16 << 20}
			if _, err := measure(t.Context(), disk, disk.size, rotational, options(withWrites)); err != nil {
				t.Fatal(err)
			}
			if used := disk.highest > 200<<20; used != rotational { // 16 MiB/s for 10 s are 160 MiB
				t.Errorf("rotational %v: the first %d bytes of the disk were used", rotational, disk.highest)
			}
		})
	}
}

func TestAnInterruptedCalibrationReturnsItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		disk := &fakeDisk{size: 256 << 20, iops: 400, bps: 16 << 20}
		o := options(readsOnly)
		o.Progress = func(p Progress) {
			if p.Step == 2 {
				cancel()
			}
		}
		if _, err := measure(ctx, disk, disk.size, ssd, o); !errors.Is(err, context.Canceled) {
			t.Errorf("error is %v, want %v", err, context.Canceled)
		}
	})
}

func TestAnErrorOfTheDiskEndsTheCalibration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		disk := &fakeDisk{size: 256 << 20, iops: 400, bps: 16 << 20, failures: 1}
		_, err := measure(t.Context(), disk, disk.size, ssd, options(readsOnly))
		if !errors.Is(err, io.ErrUnexpectedEOF) || time.Since(begin) > 5*time.Second {
			t.Errorf("error is %v after %s, want %v within 5 s", err, time.Since(begin), io.ErrUnexpectedEOF)
		}
	})
}

// TestTheProgressHasTheStepsAndTheTimeLeft has 4 steps of 10 s. The first progress is reported after 500 ms.
func TestTheProgressHasTheStepsAndTheTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &fakeDisk{size: 256 << 20, iops: 400, bps: 16 << 20}
		o := options(readsOnly)
		var first, last Progress
		o.Progress = func(p Progress) {
			if first.Name == "" {
				first = p
			}
			last = p
		}
		if _, err := measure(t.Context(), disk, disk.size, ssd, o); err != nil {
			t.Fatal(err)
		}
		if first.Left != 39500*time.Millisecond || first.Step != 1 || first.Steps != 4 || last.Left != 0 || !last.Done || last.Step != 4 {
			t.Errorf("the first progress is %+v, the last %+v", first, last)
		}
	})
}

// TestTheSpeedDoesNotCountTheBeginningAndPauses: the first tenth does not count, because buffers of the disk fill up. Of the rest, the
// slowest and the fastest quarter do not count, because pauses and the time after them are in these quarters.
func TestTheSpeedDoesNotCountTheBeginningAndPauses(t *testing.T) {
	counts := []count{{}}
	for _, part := range []struct{ seconds, rate int }{{4, 1000}, {9, 10}, {18, 100}, {9, 1000}} { // the beginning and the three parts of the rest
		for range part.seconds {
			last := counts[len(counts)-1]
			counts = append(counts, count{last.at + time.Second, last.done + int64(part.rate)})
		}
	}
	if got := speedOf(counts); got.Rate != 100 || got.Spread > 1e-9 {
		t.Errorf("got %+v, want 100 without spread", got)
	}
}

func TestTheSpeedIsZeroWithoutRequestsBetweenTwoCounts(t *testing.T) {
	for _, counts := range [][]count{nil, {{time.Second, 5}}, {{time.Second, 5}, {2 * time.Second, 5}}} {
		if got := speedOf(counts); got != (Speed{}) {
			t.Errorf("speed of %v is %+v, want 0", counts, got)
		}
	}
}

func TestACalibrationWarnsIfABusyDiskVariesAndFailsIfItVariesMuch(t *testing.T) {
	run := func(t *testing.T, busy float64, check func(Result, error)) {
		synctest.Test(t, func(t *testing.T) {
			disk := &fakeDisk{size: 256 << 20, iops: 400, bps: 128 << 20, busy: busy}
			check(measure(t.Context(), disk, disk.size, ssd, options(readsOnly)))
		})
	}

	run(t, 1.4, func(got Result, err error) {
		if err != nil || len(got.Unsteady()) != 3 {
			t.Errorf("a disk that varies: %v, with the warnings %q; want only 3 warnings", err, got.Unsteady())
		}
	})
	run(t, 4, func(got Result, err error) {
		const want = `^rbps varied by \d+%, and a cost model needs at most 50%: ` +
			`measure again while nothing else uses the disk, or with a longer --duration than 10s$`
		if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) || got.Model != nil {
			t.Errorf("a disk that varies much: got %v and the model %v, want %s", err, got.Model, want)
		}
	})
}

func TestUnsteadyValuesAreNamed(t *testing.T) {
	r := Result{Spread: map[string]float64{"wbps": 0.3, "rbps": 0.25, "rseqiops": 1.5}} // up to 0.25 is steady
	const reason = ": the disk or this machine was busy, or the disk has bursts; measure it again"
	want := []string{"rseqiops varied by 150%" + reason, "wbps varied by 30%" + reason}
	if got := r.Unsteady(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPercentiles(t *testing.T) {
	latencies := []time.Duration{5, 1, 4, 2, 3}
	for percent, want := range map[int]time.Duration{1: 1, 50: 3, 95: 5, 100: 5} {
		if got := percentile(latencies, percent); got != want {
			t.Errorf("%d%% of %v is %d, want %d", percent, latencies, got, want)
		}
	}
	if got := percentile(nil, 95); got != 0 {
		t.Errorf("percentile of no latencies is %d", got)
	}
}
