// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/test/lab"
)

// seconds returns seconds with 100 requests of these latencies in milliseconds.
func seconds(latencies ...float64) (all []lab.Second) {
	for _, l := range latencies {
		all = append(all, lab.Second{Served: 100, Latency: l})
	}
	return all
}

// TestIsolationIsTheShareOfFinishedRequestsAndImpactIsTheGrowthOfTheLatency: 100 requests a second are offered, and
// alone their median latency is 2 ms. A second in which no request is finished has a latency of one second, 49900% more.
func TestIsolationIsTheShareOfFinishedRequestsAndImpactIsTheGrowthOfTheLatency(t *testing.T) {
	for name, test := range map[string]struct {
		beside []lab.Second
		want   map[string]float64
	}{
		"the same as alone": {seconds(2, 2), map[string]float64{
			"isolation (%)": 100, "isolation stdev": 0, "latency impact p50 (%)": 0, "impact mean (%)": 0, "impact stdev": 0, "seconds": 2,
		}},
		"half of the requests, with three and five times the latency": {
			[]lab.Second{{Served: 50, Latency: 6}, {Served: 50, Latency: 10}},
			map[string]float64{"isolation (%)": 50, "isolation stdev": 0, "latency impact p50 (%)": 200, "impact mean (%)": 300, "impact stdev": 100},
		},
		"more requests than offered, with a lower latency": {
			[]lab.Second{{Served: 120, Latency: 1}},
			map[string]float64{"isolation (%)": 100, "latency impact p50 (%)": 0},
		},
		"one of two seconds without requests": {
			[]lab.Second{lab.NewSecond(nil), {Served: 100, Latency: 2}},
			map[string]float64{"isolation (%)": 50, "isolation stdev": 50, "latency impact p50 (%)": 0, "impact mean (%)": 24950},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := lab.NewProtection("", "", 100, seconds(1, 3))
			p.Measured("beside", test.beside, 0)
			for column, want := range test.want {
				if got := p.Value("beside", column); got != want {
					t.Errorf("%s: got %v, want %v", column, got, want)
				}
			}
		})
	}
}

// TestAPercentileIsShownIfThereAreEnoughSeconds: p05 and p95 need 20 seconds, and p01 and p99 need 100. In second k, k of
// 100 requests are finished, with a latency of k ms instead of 1 ms. So its isolation is k%, and its impact (k-1)*100%. Of 20 seconds, p05
// is that of second 1, and p95 that of second 19.
func TestAPercentileIsShownIfThereAreEnoughSeconds(t *testing.T) {
	for n, want := range map[int]map[string]float64{
		19:  {"isolation p05 (%)": math.NaN(), "impact p95 (%)": math.NaN()},
		20:  {"isolation p05 (%)": 1, "impact p95 (%)": 18 * 100, "isolation p01 (%)": math.NaN(), "impact p99 (%)": math.NaN()},
		100: {"isolation p05 (%)": 5, "impact p95 (%)": 94 * 100, "isolation p01 (%)": 1, "impact p99 (%)": 98 * 100},
	} {
		p := lab.NewProtection("", "", 100, seconds(slices.Repeat([]float64{1}, n)...))
		var beside []lab.Second
		for i := range n {
			beside = append(beside, lab.Second{Served: i + 1, Latency: float64(i + 1)})
		}
		p.Measured("beside", beside, 0)
		for column, want := range want {
			if got := p.Value("beside", column); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
				t.Errorf("%d seconds, %s: got %v, want %v", n, column, got, want)
			}
		}
	}
}

func TestTheLatencyOfASecondIsThe95thPercentileOfItsRequests(t *testing.T) {
	var durations []time.Duration
	for i := range 100 {
		durations = append(durations, time.Duration(100-i)*time.Millisecond)
	}
	if got, want := lab.NewSecond(durations), (lab.Second{Served: 100, Latency: 95}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTheTableOfAProtectionNamesSituationsThatTheMachineCannotRun(t *testing.T) {
	p := lab.NewProtection("protection", "A reader", 100, seconds(2, 2))
	// Alone, the latency is 2 ms. 20 ms and 40 ms are 900% and 1900% more. Of two values, p50 is the lower one.
	p.Measured(lab.NoClass, []lab.Second{{Served: 40, Latency: 20}, {Served: 60, Latency: 40}}, 3.5)
	p.CannotShow(lab.ByLatency, "cgroup v1 has no io.latency")

	want := `| A reader | isolation (%) | isolation stdev | latency impact p50 (%) | neighbours (MB/s) | impact mean (%) | impact stdev | seconds |
|---|--:|--:|--:|--:|--:|--:|--:|
| alone | 100 | 0.00 | 0.00 | 0.00 | 0.00 | 0.00 | 2.00 |
| no class | 50.0 | 10.0 | 900 | 3.50 | 1400 | 500 | 2.00 |

io.latency: this machine cannot show it: cgroup v1 has no io.latency
`
	if diff := cmp.Diff(want, p.Markdown()); diff != "" {
		t.Error(diff)
	}

	want = `A reader  isolation (%)  isolation stdev  latency impact p50 (%)  neighbours (MB/s)  impact mean (%)  impact stdev  seconds
alone               100             0.00                    0.00               0.00             0.00          0.00     2.00
no class           50.0             10.0                     900               3.50             1400           500     2.00
io.latency: this machine cannot show it: cgroup v1 has no io.latency
`
	if diff := cmp.Diff(want, p.Text()); diff != "" {
		t.Error(diff)
	}
}
