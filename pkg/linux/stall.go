// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"path"
	"strconv"
	"strings"
	"sync"
)

// stalls remembers the cgroups that stall at memory.high. A cgroup is reported after it has stalled in two rounds, until it is clearly
// below the limits at which a report begins, so that the report does not come and go at these limits.
type stalls struct {
	mu sync.Mutex // guards the maps
	// `last` has the cgroups that stalled in the last round, and `current` those that stalled in this round. The value
	// is true if the cgroup is reported as stuck.
	last, current map[string]bool
}

// nextRound begins a round. It forgets the cgroups that did not stall in the round before, including those of ended
// containers.
func (s *stalls) nextRound() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.current = s.current, map[string]bool{}
}

// observe records whether a cgroup stalls, and reports whether it is stuck. The result is the same for each call of a
// round. `still` is true until the cgroup is clearly below the limits at which a report begins.
func (s *stalls) observe(dir string, stalled, still bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	reported, stalledBefore := s.last[dir]
	stuck := stalledBefore && (stalled || reported && still)
	if s.current != nil && (stalled || stuck) {
		s.current[dir] = stuck
	}
	return stuck
}

// stuck returns a sentence if a cgroup has reached memory.high, and all of its processes spend most of their time
// waiting for memory. Otherwise it returns "". The sentence has no numbers, because they would change in each round.
func (b *Backend) stuck(dir, high string) string {
	current, err := b.opts.read(path.Join(dir, "memory.current"))
	if err != nil {
		return ""
	}
	pressure, err := b.opts.read(path.Join(dir, "memory.pressure"))
	if err != nil {
		return ""
	}

	used, limit, waits := bytesOf(current), bytesOf(high), fullPressure(pressure)
	if !b.stalls.observe(dir, used >= limit/100*99 && waits >= 50, used >= limit/100*90 && waits >= 25) {
		return ""
	}
	return "the container is stuck at memory.high: its processes wait for memory most of the time (raise memory.high or allow swap or delete the pod)"
}

// fullPressure returns the percentage of the last 10 s in which all processes were stalled, from the content of
// memory.pressure.
func fullPressure(text string) float64 {
	_, after, _ := strings.Cut(text, "full avg10=")
	number, _, _ := strings.Cut(after, " ")
	percent, _ := strconv.ParseFloat(number, 64)
	return percent
}
