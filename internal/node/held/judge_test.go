// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package held_test

import (
	"strings"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node/held"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const interval = 15 * time.Second

var (
	written  = classes.Series{Measure: "fs_writes_bytes_total", Part: "sda"}
	occupied = classes.Series{Measure: "llc_occupancy_bytes", Part: "0"}
	events   = classes.Series{Measure: "memory_high_events_total"}
	waited   = classes.Series{Measure: "pressure_io_waiting_seconds_total"}
	slow     = held.Class{Resource: "k8s.io/blockio", Name: "slow"}
)

// rate is a limit of 10 MB/s with a tolerance of 10% and a burst of 4 MB. share is a limit of 1 MB of a cache.
func rate() classes.Promise {
	return classes.Promise{Name: "ThrottleWriteBps", Use: written, Bound: 10e6, Burst: 4e6, Tolerance: 0.1, Waited: waited}
}

func share() classes.Promise {
	return classes.Promise{Name: "L3 share", Use: occupied, Bound: 1e6, Tolerance: 0.25, Remains: true}
}

// rig adds samples to a Judge at the interval.
type rig struct {
	*held.Judge
	now    time.Time
	totals map[string]classes.Reading
}

func newRig() *rig {
	return &rig{held.NewJudge(interval), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), map[string]classes.Reading{}}
}

// uses lets each holder write `mbps` MB/s for an interval, and returns the verdict on class slow.
func (r *rig) uses(p classes.Promise, mbps map[string]float64) held.Verdict {
	r.now = r.now.Add(interval)
	s := held.Sample{Time: r.now, Promising: []held.Class{slow}}
	for id, mb := range mbps {
		if r.totals[id] == nil {
			r.totals[id] = classes.Reading{}
		}
		r.totals[id][p.Use] += mb * 1e6 * interval.Seconds()
		r.totals[id][waited] += interval.Seconds() / 2
		s.Uses = append(s.Uses, held.Use{
			Resource: slow.Resource, Class: slow.Name, ID: id, Name: "pod a/" + id, Promises: []classes.Promise{p},
			Reading: classes.Reading{p.Use: r.totals[id][p.Use], waited: r.totals[id][waited]},
		})
	}
	return r.Add(s)[slow]
}

// shows adds a sample with a reading of one holder, and returns the verdict on class slow.
func (r *rig) shows(p classes.Promise, reading classes.Reading) held.Verdict {
	r.now = r.now.Add(interval)
	return r.Add(held.Sample{Time: r.now, Promising: []held.Class{slow}, Uses: []held.Use{{
		Resource: slow.Resource, Class: slow.Name, ID: "b", Name: "pod a/b", Promises: []classes.Promise{p}, Reading: reading,
	}}})[slow]
}

func wantReason(t *testing.T, v held.Verdict, want string) {
	t.Helper()
	if v.Reason != want {
		t.Errorf("the reason is %s, want %s: %s", v.Reason, want, v.Message)
	}
	if healthy := v.Condition().Healthy; healthy != (want != qos.ReasonLimitNotHeld) {
		t.Errorf("with reason %s, the condition is healthy: %t", v.Reason, healthy)
	}
}

// TestTheVerdictOnARateIsAboutItsMeanOverTheWindow uses a limit of 10 MB/s. It is reached when the use in an interval is at
// least 9 MB/s. A window is four intervals, so the fifth sample is the first one with a whole window. The limit is not held
// if the mean over a window is above 11 MB/s, and held again when it is below 10.5 MB/s. Both bounds are higher by a burst, which is
// 4 MB, or 0.07 MB/s over a window.
func TestTheVerdictOnARateIsAboutItsMeanOverTheWindow(t *testing.T) {
	const notMeasured, never, reached, notHeld = qos.ReasonNotMeasured, qos.ReasonNeverReached, qos.ReasonReached, qos.ReasonLimitNotHeld
	for _, test := range []struct {
		name string
		// mbps is the use in each interval, and reasons the verdict after it.
		mbps    []float64
		reasons []string
	}{
		{"NeverReached needs a whole window", []float64{1, 1, 1, 1, 1}, []string{notMeasured, notMeasured, notMeasured, notMeasured, never}},
		{"a limit that is reached stays reached", []float64{1, 9.5, 1, 1, 1, 1, 1}, []string{notMeasured, reached, reached, reached, reached, reached, reached}},
		{"a limit that is not held", []float64{40, 40, 40, 40, 40}, []string{notMeasured, reached, reached, reached, notHeld}},
		{"use within the tolerance", []float64{10.9, 10.9, 10.9, 10.9, 10.9, 10.9}, []string{notMeasured, reached, reached, reached, reached, reached}},
		{
			"one interval above the tolerance, and a mean below it", []float64{9, 9, 9, 9, 11.2, 9, 9, 9},
			[]string{notMeasured, reached, reached, reached, reached, reached, reached, reached},
		},
		{
			"LimitNotHeld ends below half of the tolerance", []float64{13, 13, 13, 13, 13, 10.8, 10.8, 10.8, 10.8, 10.8, 9, 9, 9, 9},
			[]string{notMeasured, reached, reached, reached, notHeld, notHeld, notHeld, notHeld, notHeld, notHeld, reached, reached, reached, reached},
		},
		{"a counter that begins again at a lower value", []float64{1, 1, 1, 1, 1, -4, 1}, []string{notMeasured, notMeasured, notMeasured, notMeasured, never, never, never}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig()
			for i, mbps := range test.mbps {
				if v := r.uses(rate(), map[string]float64{"b": mbps}); v.Reason != test.reasons[i] {
					t.Errorf("sample %d: the reason is %s, want %s: %s", i, v.Reason, test.reasons[i], v.Message)
				}
			}
		})
	}
}

// TestAVerdictNamesTheHolderAndTheSizeOfTheError also checks that a message stays while its figure changes by at most a quarter.
func TestAVerdictNamesTheHolderAndTheSizeOfTheError(t *testing.T) {
	r := newRig()
	var v held.Verdict
	for range 6 {
		v = r.uses(rate(), map[string]float64{"b": 38, "c": 3})
	}
	const want = "Over a minute or more, pod a/b took 38M/s of 10M/s: ThrottleWriteBps of sda is exceeded by 280%; " +
		"see docs/held.md for possible reasons."
	if v.Message != want {
		t.Errorf("got %q\nwant %q", v.Message, want)
	}
	if len(v.Limits) != 1 || v.Limits[0] != (held.Limit{Name: "ThrottleWriteBps", Part: "sda", Ratio: 3.8}) {
		t.Errorf("the limits are %+v", v.Limits)
	}

	if again := r.uses(rate(), map[string]float64{"b": 45, "c": 3}); again.Message != v.Message {
		t.Errorf("the message has changed with a small change of the use: %s", again.Message)
	}
	for range 6 {
		v = r.uses(rate(), map[string]float64{"b": 90, "c": 20})
	}
	if !strings.Contains(v.Message, "pod a/b took 90M/s") || !strings.Contains(v.Message, "pod a/c took 20M/s") {
		t.Errorf("after the use has doubled, the message is still %s", v.Message)
	}
}

// TestLimitNotHeldEndsWhenTheContainerEnds ends b, which has exceeded the limit, and then c. That the limit was reached is still reported.
func TestLimitNotHeldEndsWhenTheContainerEnds(t *testing.T) {
	r := newRig()
	for range 6 {
		r.uses(rate(), map[string]float64{"b": 38, "c": 1})
	}
	wantReason(t, r.uses(rate(), map[string]float64{"b": 38, "c": 1}), qos.ReasonLimitNotHeld)
	wantReason(t, r.uses(rate(), map[string]float64{"c": 1}), qos.ReasonReached)
	wantReason(t, r.uses(rate(), nil), qos.ReasonReached)
}

// TestAReachedLimitSaysHowLongTheHolderWaited uses holder b, which waits for half of each interval.
func TestAReachedLimitSaysHowLongTheHolderWaited(t *testing.T) {
	r := newRig()
	r.uses(rate(), map[string]float64{"b": 10})
	v := r.uses(rate(), map[string]float64{"b": 10})
	if want := "Reached and held: ThrottleWriteBps of sda 10M/s (waited 50% of the time)."; v.Message != want {
		t.Errorf("got %q, want %q", v.Message, want)
	}
}

// TestANewLimitBeginsANewWindow uses 38 MB/s. This is above the former limit of 10 MB/s, and far below the new one of 100 MB/s.
func TestANewLimitBeginsANewWindow(t *testing.T) {
	r := newRig()
	for range 6 {
		r.uses(rate(), map[string]float64{"b": 38})
	}
	wider := rate()
	wider.Bound = 100e6
	wantReason(t, r.uses(wider, map[string]float64{"b": 38}), qos.ReasonNotMeasured)
	for range 3 {
		r.uses(wider, map[string]float64{"b": 38})
	}
	// A window is four intervals, so the fifth sample with the new limit completes the first window.
	v := r.uses(wider, map[string]float64{"b": 38})
	wantReason(t, v, qos.ReasonNeverReached)
	if want := "No limit was reached since " + r.now.Add(-held.Window).Format(time.RFC3339) + "."; v.Message != want {
		t.Errorf("got %q, want %q: only the former limit was reached", v.Message, want)
	}
}

// TestLimitNotHeldEndsAfterAWindowWithoutValues has a limit of 10 MB/s. It checks also that a shorter gap does not end LimitNotHeld,
// because counters of memory bandwidth are unavailable at times.
func TestLimitNotHeldEndsAfterAWindowWithoutValues(t *testing.T) {
	r := newRig()
	for range 6 {
		r.uses(rate(), map[string]float64{"b": 38})
	}
	for range int(held.Window / interval) {
		wantReason(t, r.shows(rate(), nil), qos.ReasonLimitNotHeld)
	}
	wantReason(t, r.shows(rate(), nil), qos.ReasonReached) // that the limit was reached once is still reported
}

// TestALongPauseBeginsANewWindow: the first sample after a pause of an hour is not compared with the one before the pause. If it
// were, its 5000 MB/s in the last 15 s would be a mean of 21 MB/s, and the limit is 10 MB/s.
func TestALongPauseBeginsANewWindow(t *testing.T) {
	r := newRig()
	for range 6 {
		r.uses(rate(), map[string]float64{"b": 1})
	}
	r.now = r.now.Add(time.Hour)
	wantReason(t, r.uses(rate(), map[string]float64{"b": 5000}), qos.ReasonNeverReached)
}

func TestAShareOfACacheIsNotHeldIfEachSampleOfAWindowExceedsIt(t *testing.T) {
	r := newRig()
	within, beyond := classes.Reading{occupied: 0.5e6}, classes.Reading{occupied: 1.6e6}
	for range 6 {
		r.shows(share(), beyond)
	}
	// All lines in the cache can be from the time before the class, because no sample was within the share yet.
	wantReason(t, r.shows(share(), beyond), qos.ReasonNeverReached)
	r.shows(share(), within)
	// A window is four intervals, so it has five samples. One of them is still the sample within the share.
	for range 4 {
		wantReason(t, r.shows(share(), beyond), qos.ReasonReached)
	}
	wantReason(t, r.shows(share(), beyond), qos.ReasonLimitNotHeld)
	wantReason(t, r.shows(share(), within), qos.ReasonReached)
}

func TestALimitWithACounterIsReachedOnlyIfTheCounterGrows(t *testing.T) {
	r := newRig()
	high := classes.Promise{Name: "memory.high", Use: classes.Series{Measure: "memory_bytes"}, Bound: 64e6, Tolerance: 0.1, Reached: events}
	for range 6 {
		r.shows(high, classes.Reading{high.Use: 63e6, events: 7})
	}
	wantReason(t, r.shows(high, classes.Reading{high.Use: 63e6, events: 7}), qos.ReasonNeverReached)
	wantReason(t, r.shows(high, classes.Reading{high.Use: 40e6, events: 8}), qos.ReasonReached)
}

func TestTheMessageNamesWhatIsNotMeasured(t *testing.T) {
	unknown := classes.Promise{Name: "memory bandwidth", Use: classes.Series{Measure: "memory_bandwidth_bytes_total"}, Unknown: "per cent of what?"}
	for _, test := range []struct {
		name    string
		promise classes.Promise
		reading classes.Reading
		message string
	}{
		{"a bound without a value", unknown, classes.Reading{unknown.Use: 1}, "Not measured: memory bandwidth (per cent of what?)."},
		{"no value from the kernel", rate(), classes.Reading{}, "Not measured: ThrottleWriteBps (the kernel shows no value)."},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig()
			var v held.Verdict
			for range 6 {
				v = r.shows(test.promise, test.reading)
			}
			wantReason(t, v, qos.ReasonNotMeasured)
			if v.Message != test.message {
				t.Errorf("got %q, want %q", v.Message, test.message)
			}
		})
	}
}

func TestTheMessageSaysThatAClassHasNoHolders(t *testing.T) {
	v := newRig().uses(rate(), nil)
	wantReason(t, v, qos.ReasonNotMeasured)
	if want := "No container or pod with the class was measured."; v.Message != want {
		t.Errorf("got %q, want %q", v.Message, want)
	}
}

// FuzzUseWithinALimitIsNeverLimitNotHeld generates uses that a rate limit allows, with requests of up to one burst, at
// irregular times.
func FuzzUseWithinALimitIsNeverLimitNotHeld(f *testing.F) {
	f.Add([]byte{255, 15, 255, 15, 255, 15, 255, 15, 255, 15, 255, 15})
	f.Add([]byte{0, 60, 255, 1, 255, 1, 255, 255, 0, 1})
	f.Fuzz(func(t *testing.T, draws []byte) {
		p := rate()
		j, now := held.NewJudge(interval), time.Unix(0, 0)
		used, saved := 0.0, p.Burst
		for i := 0; i+1 < len(draws); i += 2 {
			seconds := float64(draws[i+1]%30) + 1
			now = now.Add(time.Duration(seconds) * time.Second)
			saved = min(saved+p.Bound*seconds, p.Bound*seconds+p.Burst)
			take := saved * float64(draws[i]) / 255
			used, saved = used+take, saved-take
			v := j.Add(held.Sample{Time: now, Uses: []held.Use{{
				Resource: slow.Resource, Class: slow.Name, ID: "b", Promises: []classes.Promise{p}, Reading: classes.Reading{p.Use: used},
			}}})[slow]
			if v.Reason == qos.ReasonLimitNotHeld {
				t.Fatalf("after %d samples: %s", i/2+1, v.Message)
			}
		}
	})
}

// FuzzUseOfTwiceTheLimitIsLimitNotHeld generates uses of at least twice the limit in each interval.
func FuzzUseOfTwiceTheLimitIsLimitNotHeld(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0})
	f.Add([]byte{0, 255, 3, 9, 100, 0, 0, 0})
	f.Fuzz(func(t *testing.T, draws []byte) {
		r := newRig()
		for i, draw := range draws {
			v := r.uses(rate(), map[string]float64{"b": 20 + float64(draw)})
			if full := i >= int(held.Window/interval); full != (v.Reason == qos.ReasonLimitNotHeld) {
				t.Fatalf("after %d samples the reason is %s", i+1, v.Reason)
			}
		}
	})
}
