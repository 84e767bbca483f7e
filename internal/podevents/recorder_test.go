// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podevents

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTheCountOfAnExistingEventContinues adds a record to an event with the count 3, whose last occurrence was at second 30. A record
// that begins after second 30 is of a counter that was reset, so the counts are added. Any other record includes the earlier occurrences,
// so the event gets its count, but at least 4. `changed` is false if the event already includes the record.
func TestTheCountOfAnExistingEventContinues(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 500) } // the times of events are in whole seconds
	event := &corev1.Event{Count: 3, FirstTimestamp: metav1.Unix(10, 0), LastTimestamp: metav1.Unix(30, 0)}
	for _, c := range []struct {
		name        string
		count       uint64
		first, last time.Time
		want        int32
		changed     bool
	}{
		{"without a new occurrence the count stays", 3, at(10), at(30), 3, false},
		{"the same counter continues", 5, at(10), at(50), 5, true},
		{"a counter that was reset is added", 2, at(40), at(50), 5, true},
		{"a counter that lost occurrences still raises the count", 2, at(20), at(50), 4, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, changed := countOf(event, Record{Count: c.count, First: c.first, Last: c.last})
			if got != c.want || changed != c.changed {
				t.Errorf("the count is %d (changed: %v), want %d (%v)", got, changed, c.want, c.changed)
			}
		})
	}
}

// TestEachSeriesOfOccurrencesHasAnEventOfItsOwn compares the names of Event objects. The name of a pod can be as long
// as that of an Event, so it is cut. The name in this test is cut behind a dot, and a dot follows.
func TestEachSeriesOfOccurrencesHasAnEventOfItsOwn(t *testing.T) {
	pod := corev1.ObjectReference{Namespace: "default", Name: "web", UID: "uid-web"}
	r := Record{Reason: ClassRefused, Container: "main", Series: "ClassFull", Message: "1 of 1"}
	name := nameOf(pod, r)
	repeated := r
	repeated.Message = "2 of 1"
	if nameOf(pod, repeated) != name {
		t.Error("a repeated refusal is another event")
	}

	for what, differs := range map[string]func() string{
		"pod":       func() string { p := pod; p.UID = "other"; return nameOf(p, r) },
		"container": func() string { x := r; x.Container = "other"; return nameOf(pod, x) },
		"reason":    func() string { x := r; x.Reason = ClassChanged; return nameOf(pod, x) },
		"series":    func() string { x := r; x.Series = "UnknownClass"; return nameOf(pod, x) },
	} {
		if differs() == name {
			t.Errorf("another %s has the same event", what)
		}
	}

	pod.Name = strings.Repeat("a", 235) + "." + strings.Repeat("b", 17)
	if long := nameOf(pod, r); len(long) > 253 || strings.Contains(long, "..") {
		t.Errorf("the event's name has %d characters, or an empty label: %s", len(long), long)
	}
}
