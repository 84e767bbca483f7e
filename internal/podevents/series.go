// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podevents

import (
	"cmp"
	"slices"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

// interval is the minimum time between two writes of one event.
const interval = 5 * time.Minute

// Series has the event series of one pod. It keeps a series until it is written, and for some time after that. The zero
// value is empty. A Series is not safe for concurrent use.
type Series struct{ all []*series }

type series struct {
	Record
	// writtenUpTo is the time of the last occurrence that was written. `writtenAt` is the time of that write. Both are
	// zero before the first write.
	writtenUpTo, writtenAt time.Time
}

func (s *series) pending() bool { return s.Last.After(s.writtenUpTo) }

// wait returns the time after which the series may be written. 0 means that it may be written now.
func (s *series) wait() time.Duration {
	if s.writtenAt.IsZero() {
		return 0
	}
	return max(time.Until(s.writtenAt.Add(interval)), 0)
}

// Set stores records. Each record replaces the previous record of its series.
func (s *Series) Set(records ...Record) {
	for _, r := range records {
		s.find(r).Record = r
	}
}

// Add adds occurrences to the counts of their series.
func (s *Series) Add(records ...Record) {
	for _, r := range records {
		known := s.find(r)
		if known.Count > 0 {
			r.Count, r.First = r.Count+known.Count, known.First
		}
		known.Record = r
	}
}

func (s *Series) find(r Record) *series {
	i := slices.IndexFunc(s.all, func(known *series) bool { return known.identity() == r.identity() })
	if i >= 0 {
		return s.all[i]
	}
	added := &series{Record: Record{Container: r.Container, Reason: r.Reason, Series: r.Series}}
	s.all = append(s.all, added)
	return added
}

// Write passes each pending series to the function `write`. If `write` fails for a series, Write continues with the next one. It returns the
// first error, and the time after which Write must be called again. The time 0 means that no call is needed until something is recorded.
func (s *Series) Write(write func(Record) error) (again time.Duration, err error) {
	for _, known := range s.all {
		if !known.pending() {
			continue
		}
		if wait := known.wait(); wait > 0 {
			again = pause.Shortest(again, wait)
			continue
		}
		if failed := write(known.Record); failed != nil {
			err = cmp.Or(err, failed)
			continue
		}
		known.writtenUpTo, known.writtenAt = known.Last, time.Now()
	}

	s.all = slices.DeleteFunc(s.all, func(known *series) bool {
		return !known.pending() && time.Since(known.writtenAt) > 2*interval && time.Since(known.Last) > 2*interval
	})
	return again, err
}
