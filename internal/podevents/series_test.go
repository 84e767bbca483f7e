// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podevents

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestASeriesIsWrittenAtMostOncePerInterval has three occurrences within two minutes. The interval is five minutes.
func TestASeriesIsWrittenAtMostOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Series
		var counts []uint64
		write := func(r Record) error { counts = append(counts, r.Count); return nil }
		happen := func() { s.Add(Record{Reason: "Changed", Count: 1, First: time.Now(), Last: time.Now()}) }

		happen()
		if again, err := s.Write(write); again != 0 || err != nil {
			t.Errorf("first write: again after %s, error %v; want neither", again, err)
		}

		<-time.After(time.Minute)
		happen()
		<-time.After(time.Minute)
		happen()
		again, _ := s.Write(write)
		if again != 3*time.Minute || len(counts) != 1 {
			t.Errorf("within the interval: %d writes, again after %s; want 1 and 3m", len(counts), again)
		}

		<-time.After(again)
		if again, _ = s.Write(write); again != 0 || !slices.Equal(counts, []uint64{1, 3}) {
			t.Errorf("after the interval: counts %v, again after %s; want 1, then 3, and nothing to wait for", counts, again)
		}

		<-time.After(time.Hour)
		if _, _ = s.Write(write); len(counts) != 2 || len(s.all) != 0 {
			t.Errorf("after an idle hour: %d writes and %d series; want no more writes and the series dropped", len(counts), len(s.all))
		}
	})
}

func TestASeriesThatCannotBeWrittenBlocksNoOther(t *testing.T) {
	denied := errors.New("denied")
	var s Series
	var written []string
	s.Set(Record{Reason: "First", Count: 1, Last: time.Now()}, Record{Reason: "Second", Count: 1, Last: time.Now()})
	write := func(failing string) error {
		_, err := s.Write(func(r Record) error {
			if r.Reason == failing {
				return denied
			}
			written = append(written, r.Reason)
			return nil
		})
		return err
	}

	if err := write("First"); !errors.Is(err, denied) || !slices.Equal(written, []string{"Second"}) {
		t.Errorf("wrote %v with error %v; want Second, and the error of First", written, err)
	}

	if err := write(""); err != nil || !slices.Equal(written, []string{"Second", "First"}) {
		t.Errorf("wrote %v with error %v; want only First retried", written, err)
	}
}
