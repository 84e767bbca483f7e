// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// usersOf reads "GROUP=COUNTERS" for each user. A group with slashes is CLASS/POD/CONTAINER. The root group is "root". COUNTERS has "t" for
// a counter of all transfers, and "l" for one of local transfers.
func usersOf(text string) (users []user) {
	for _, word := range strings.Fields(text) {
		name, counters, _ := strings.Cut(word, "=")
		u := user{group: strings.TrimPrefix(name, "root"), has: resctrl.Assignments{
			{Event: resctrl.MBMTotal}: strings.Contains(counters, "t"), {Event: resctrl.MBMLocal}: strings.Contains(counters, "l"),
		}}
		if parts := strings.Split(name, "/"); len(parts) == 3 {
			u.container = &candidate{id: parts[2], class: parts[0], pod: parts[1]}
		}
		users = append(users, u)
	}
	return users
}

// TestCountersAreDividedAmongClassesAndPods plans the counters of one cache. All users get a counter of all transfers (t) before
// any gets one of local transfers (l). For each kind, classes and the root group come before containers, in the given order.
// The containers share the rest evenly between their classes, and between the pods of a class. Only counters of the root
// group are never taken away.
func TestCountersAreDividedAmongClassesAndPods(t *testing.T) {
	for name, test := range map[string]struct {
		users string
		free  int // the counters that no group has
		want  string
	}{
		"there are enough":                              {"gold= root= gold/p/1=", 9, "gold=tl root=tl gold/p/1=tl"},
		"the kernel has taken all counters away":        {"gold= silver= root= gold/p/1= gold/p/2=", 4, "gold=t silver=t root=t gold/p/1=t gold/p/2="},
		"classes are first":                             {"gold= silver= root= gold/p/1=tl", 0, "gold=t silver=t root= gold/p/1="},
		"all transfers are first":                       {"gold=tl silver= root= gold/p/1=tl", 0, "gold=t silver=t root=t gold/p/1=t"},
		"the root group keeps its counters":             {"gold= root=tl gold/p/1=tl", 0, "gold=t root=tl gold/p/1=t"},
		"groups of other programs have all counters":    {"gold= root= gold/p/1=", 0, "gold= root= gold/p/1="},
		"the pod with the fewest is first":              {"root=tl g/p/1=t g/p/2= g/q/3=", 1, "root=tl g/p/1=t g/p/2= g/q/3=t"},
		"a pod gets one of another pod":                 {"root=tl g/p/1=t g/p/2=t g/q/3=", 0, "root=tl g/p/1=t g/p/2= g/q/3=t"},
		"a class gets one of another class":             {"root=tl g/p/1=t g/q/2=t s/r/3=", 0, "root=tl g/p/1=t g/q/2= s/r/3=t"},
		"even shares stay":                              {"root=tl g/p/1= g/q/2=t s/r/3=t s/r/4=", 0, "root=tl g/p/1= g/q/2=t s/r/3=t s/r/4="},
		"a new class takes one of a container":          {"new= root=tl g/p/1=t g/p/2=t", 0, "new=t root=tl g/p/1=t g/p/2="},
		"the rest is for local transfers":               {"gold= root= g/p/1= g/p/2=", 6, "gold=tl root=tl g/p/1=t g/p/2=t"},
		"the counters of ended containers go to others": {"root=tl g/p/2= g/p/3=", 3, "root=tl g/p/2=tl g/p/3=t"},
	} {
		t.Run(name, func(t *testing.T) {
			users := usersOf(test.users)
			free := test.free
			const anew = false // containers that have a counter may keep it
			for _, c := range planCounters(users, map[int]int{0: free}, anew) {
				if users[c.user].has[c.counter] == c.assigned {
					t.Errorf("%+v changes nothing", c)
				}
				users[c.user].has[c.counter] = c.assigned
				if c.assigned {
					free--
				} else {
					free++
				}
				if free < 0 {
					t.Errorf("%+v: there is no free counter yet", c)
				}
			}
			if diff := cmp.Diff(usersOf(test.want), users, cmp.AllowUnexported(user{}, candidate{})); diff != "" {
				t.Errorf("counters (-want +got):\n%s", diff)
			}
			if again := planCounters(users, map[int]int{0: free}, anew); len(again) > 0 {
				t.Errorf("the next plan has changes: %+v", again)
			}
		})
	}
}
