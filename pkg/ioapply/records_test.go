// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package ioapply

import (
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

type memory map[string][]byte

func (m memory) Load() map[string][]byte { return m }

func (m memory) Save(changed map[string][]byte) error {
	maps.Copy(m, changed)
	maps.DeleteFunc(m, func(_ string, data []byte) bool { return data == nil })
	return nil
}

var (
	sda    = iocgroup.Setting{Device: iocgroup.Device{Major: 8}}
	sdb    = iocgroup.Setting{Device: iocgroup.Device{Major: 8, Minor: 16}}
	weight = iocgroup.Setting{File: iocgroup.IOBFQWeight, Device: sda.Device}
	target = classes.Holder{ID: "c1", Container: "main", CgroupsPath: "/kubepods/pod1/c1"}
)

func newRecords(t *testing.T, saved memory) *Records {
	t.Helper()
	r := NewRecords(slog.New(slog.DiscardHandler))
	if err := r.Remember(saved); err != nil {
		t.Fatal(err)
	}
	return r
}

// begin begins a change, as the plugin does before it writes the values.
func begin(r *Records, class string, values iocgroup.Values) Change {
	change := r.Get(target).Compare(nil, values, func(iocgroup.Setting) bool { return true }, func(iocgroup.Setting) bool { return false })
	change.Applied.Class = class
	r.Begin(target, class, &change, change.Values)
	return change
}

// TestCompare compares the values that were applied to a cgroup and those that it has (`live`) with the wanted ones. `change`
// has the values to write, `lower` the lower limits of another program that stay, and `records` what counts as applied.
// The plugin yields to lower limits only on sdb. The two numbers of a value are limits of different kinds; 0 means unlimited.
func TestCompare(t *testing.T) {
	ten, seven, five := iocgroup.Value{10}, iocgroup.Value{7}, iocgroup.Value{5}
	yields := func(s iocgroup.Setting) bool { return s == sdb }
	for _, test := range []struct {
		name                                 string
		applied                              map[iocgroup.Setting][]iocgroup.Value
		live, wanted, change, lower, records iocgroup.Values
	}{
		{name: "A new cgroup gets the wanted values", wanted: iocgroup.Values{sda: ten}, change: iocgroup.Values{sda: ten}, records: iocgroup.Values{sda: ten}},
		{name: "What was applied and is not wanted is cleared", applied: map[iocgroup.Setting][]iocgroup.Value{sda: {ten}, weight: {five}},
			live: iocgroup.Values{sda: ten, weight: five}, change: iocgroup.Values{sda: {}, weight: {}}},
		{name: "What may have been applied is cleared", applied: map[iocgroup.Setting][]iocgroup.Value{sda: {ten, seven}},
			live: iocgroup.Values{sda: ten}, change: iocgroup.Values{sda: {}}},
		{name: "What another program has changed stays", applied: map[iocgroup.Setting][]iocgroup.Value{sda: {ten}, weight: {five}},
			live: iocgroup.Values{sda: seven, weight: seven}},
		{name: "What another program has added to a disk stays", applied: map[iocgroup.Setting][]iocgroup.Value{sda: {ten}},
			live: iocgroup.Values{sda: {10, 7}}, change: iocgroup.Values{sda: {0, 7}}},
		{name: "A wanted value replaces that of another program", live: iocgroup.Values{sda: seven}, wanted: iocgroup.Values{sda: ten},
			change: iocgroup.Values{sda: ten}, records: iocgroup.Values{sda: ten}},
		{name: "A lower limit of another program stays where the plugin yields", live: iocgroup.Values{sdb: {7, 3}}, wanted: iocgroup.Values{sdb: ten},
			change: iocgroup.Values{sdb: {7, 3}}, lower: iocgroup.Values{sdb: {7, 3}}},
		{name: "A higher limit of another program is replaced", live: iocgroup.Values{sdb: ten}, wanted: iocgroup.Values{sdb: seven},
			change: iocgroup.Values{sdb: seven}, records: iocgroup.Values{sdb: seven}},
		{name: "A lower limit that was applied is replaced", applied: map[iocgroup.Setting][]iocgroup.Value{sdb: {seven}}, live: iocgroup.Values{sdb: seven},
			wanted: iocgroup.Values{sdb: ten}, change: iocgroup.Values{sdb: ten}, records: iocgroup.Values{sdb: ten}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Applied{Values: test.applied}.Compare(test.live, test.wanted, func(iocgroup.Setting) bool { return true }, yields)
			for what, pair := range map[string][2]iocgroup.Values{
				"change": {test.change, got.Values}, "lower": {test.lower, got.Lower}, "records": {test.records, got.Applied.Settings()},
			} {
				if !maps.Equal(pair[0], pair[1]) {
					t.Errorf("%s: got %v, want %v", what, pair[1], pair[0])
				}
			}
		})
	}
}

// TestAnObservationDoesNotReplaceALaterChange confirms values that were read before another change.
func TestAnObservationDoesNotReplaceALaterChange(t *testing.T) {
	r := newRecords(t, memory{})
	before := r.Get(target)
	change := begin(r, "slow", iocgroup.Values{sda: {10}})
	r.Confirm(target, before)
	if got := r.Get(target).Settings(); !maps.Equal(got, iocgroup.Values{sda: {10}}) {
		t.Errorf("applied is %v, want the value of the later change", got)
	}
	r.Confirm(target, change.Applied) // after the change
	if got := r.Get(target); got.Class != "slow" || !got.Has(sda) {
		t.Errorf("applied is %+v, want the class slow with its limit of sda", got)
	}
}

// TestRecordsSurviveTheProcess begins two changes and confirms none, so the cgroup may have the values of both.
func TestRecordsSurviveTheProcess(t *testing.T) {
	saved := memory{}
	r := newRecords(t, saved)
	begin(r, "slow", iocgroup.Values{sda: {10, 0, 3}, weight: {200}, {File: iocgroup.IOWeight}: {300}})
	begin(r, "fast", iocgroup.Values{sda: {20}})
	want := map[iocgroup.Setting][]iocgroup.Value{sda: {{10, 0, 3}, {20}}, weight: {{200}}, {File: iocgroup.IOWeight}: {{300}}}
	for range 2 { // Begin saves the records, and Save keeps them
		got := newRecords(t, saved).Get(target)
		if diff := cmp.Diff(want, got.Values); diff != "" || got.Class != "fast" {
			t.Errorf("the class is %q, and the values (-want +got):\n%s", got.Class, diff)
		}
		r.Save()
	}
}

// TestValuesThatTheRuntimeStoresAreNotSaved also checks that a value which the runtime has replaced no longer counts as
// applied.
func TestValuesThatTheRuntimeStoresAreNotSaved(t *testing.T) {
	saved := memory{}
	r := newRecords(t, saved)
	values := iocgroup.Values{sda: {10}}
	r.Store(target, values, func(iocgroup.Setting) bool { return true })
	// An observation finds the value in the cgroup. It counts as applied, but is not saved: the runtime returns it after a restart.
	change := r.Get(target).Compare(values, values, func(iocgroup.Setting) bool { return true }, func(iocgroup.Setting) bool { return false })
	change.Applied.Class = "slow"
	r.Confirm(target, change.Applied)
	r.Save()
	if _, has := saved[prefix+target.CgroupsPath]; has || !r.Get(target).Has(sda) {
		t.Errorf("the memory has %s, and applied is %+v", saved, r.Get(target))
	}

	r.Store(target, iocgroup.Values{}, func(iocgroup.Setting) bool { return true })
	if r.Get(target).Has(sda) {
		t.Error("a value that the runtime has replaced counts as applied")
	}
}

func TestTheRecordOfAnObservedCgroupIsRemovedWithTheCgroup(t *testing.T) {
	r := newRecords(t, memory{})
	begin(r, "slow", iocgroup.Values{sda: {10}})
	r.Confirm(target, r.Get(target))
	if r.Prune(func(string) bool { return true }); !r.Get(target).Has(sda) {
		t.Error("the record of an existing cgroup was removed")
	}
	if r.Prune(func(string) bool { return false }); r.Get(target).Has(sda) {
		t.Error("the record of a removed cgroup was kept")
	}
}

// TestRecordsOfCgroupsThatAreGoneAreRemoved has the record of a cgroup that was not read yet. Such a record is kept for keepTime,
// because the runtime may still create the cgroup.
func TestRecordsOfCgroupsThatAreGoneAreRemoved(t *testing.T) {
	for _, test := range []struct {
		name   string
		age    time.Duration // of the record
		exists func(*Records) bool
		kept   bool
	}{
		{"the runtime may not have created the cgroup yet", keepTime - 1, func(*Records) bool { return false }, true},
		{"the cgroup exists", keepTime, func(*Records) bool { return true }, true},
		{"the cgroup is created again after Prune found that it is gone", keepTime, func(r *Records) bool {
			begin(r, "slow", iocgroup.Values{sdb: {20}})
			return false
		}, true},
		{"the cgroup is gone", keepTime, func(*Records) bool { return false }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			saved, now := memory{}, time.Unix(0, 0)
			r := newRecords(t, saved)
			r.now = func() time.Time { return now }
			begin(r, "slow", iocgroup.Values{sda: {10}})
			now = now.Add(test.age)
			r.Prune(func(string) bool { return test.exists(r) })
			r.Save()
			_, isSaved := saved[prefix+target.CgroupsPath]
			if has := len(r.Get(target).Values) > 0; has != test.kept || isSaved != test.kept {
				t.Errorf("the record exists: %t, and is saved: %t; want %t", has, isSaved, test.kept)
			}
		})
	}
}

// countingMemory counts the saves.
type countingMemory struct {
	memory
	saves int
}

func (m *countingMemory) Save(changed map[string][]byte) error {
	m.saves++
	return m.memory.Save(changed)
}

// TestAReloadSavesTheValuesOfAllCgroupsWithOneWrite also loads the saved records, like a plugin that was killed during
// the reload.
func TestAReloadSavesTheValuesOfAllCgroupsWithOneWrite(t *testing.T) {
	saved := &countingMemory{memory: memory{marker: []byte("{}")}}
	r := NewRecords(slog.New(slog.DiscardHandler))
	if err := r.Remember(saved); err != nil {
		t.Fatal(err)
	}

	// All containers are assigned to class slow. The plugin has not enforced it yet for c3, whose record still has class fast.
	var holdings []classes.Holding
	for id, class := range map[string]string{"c1": "slow", "c2": "slow", "c3": "fast"} {
		h := classes.Holder{ID: id, Container: "main", CgroupsPath: "/kubepods/" + id}
		r.Expect(h, class, iocgroup.Values{sda: {10}})
		holdings = append(holdings, classes.Holding{Holder: h, Assignments: []classes.Assignment{{Resource: "io", Class: "slow"}}})
	}
	saved.saves = 0

	after := iocgroup.Values{sda: {7}} // the limit of class slow after the reload
	valuesOf := func(string) (iocgroup.Values, error) { return after, nil }
	r.ExpectAll(holdings, "io", valuesOf)
	r.ExpectAll(holdings, "io", valuesOf) // the second time, there is nothing new to save
	for _, h := range holdings {
		if h.ID != "c3" {
			r.Expect(h.Holder, "slow", after) // the reconciler enforces the class
		}
	}
	if saved.saves != 1 {
		t.Errorf("the records were saved %d times, want once", saved.saves)
	}

	killed := newRecords(t, saved.memory)
	for _, h := range holdings {
		want := []iocgroup.Value{{10}, {7}} // the cgroup has one of these limits
		if h.ID == "c3" {
			want = want[:1] // the reload concerns only cgroups that have class slow
		}
		if got := killed.Get(h.Holder).Values[sda]; !cmp.Equal(want, got) {
			t.Errorf("%s may have %v, want %v", h.ID, got, want)
		}
	}
}
