// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// candidatesOf reads "CLASS/POD/CONTAINER" for each container, with "*" at the end if the container is monitored.
func candidatesOf(text string) (all []candidate) {
	for _, word := range strings.Fields(text) {
		name, monitored := strings.CutSuffix(word, "*")
		parts := strings.Split(name, "/")
		all = append(all, candidate{parts[2], parts[0], parts[1], monitored})
	}
	return all
}

// mostTaken is the number of RMIDs that a call of shareRMIDs may take away from containers.
const mostTaken = 2

// TestRMIDsAreDividedEvenlyAmongClassesAndPods gives free RMIDs to the class with the fewest, in this class to the pod with the
// fewest, and in this pod to the oldest container. Only if none is free (0), a class loses one to a class that has at least two fewer.
// In the same way, a pod loses one to another pod of its class. The newest container loses it.
func TestRMIDsAreDividedEvenlyAmongClassesAndPods(t *testing.T) {
	for name, test := range map[string]struct {
		candidates string
		free       int    // negative if other programs use RMIDs that are reserved for classes
		want       string // "CONTAINER" or "CONTAINER<CONTAINER THAT LOSES ITS RMID" for each turn
	}{
		"all get one":                                     {"g/p/1 g/p/2 s/q/3", 5, "1 3 2"},
		"nobody waits":                                    {"g/p/1* g/p/2*", 0, ""},
		"the oldest container is first":                   {"g/p/1 g/q/2 g/r/3", 2, "1 2"},
		"the class with the fewest is first":              {"g/p/1* g/p/2* g/p/3 s/q/4 s/q/5 s/q/6", 3, "4 5 3"},
		"the pod with the fewest is first":                {"g/p/1* g/p/2 g/p/3 g/q/4", 2, "4 2"},
		"a class with all RMIDs loses some":               {"g/p/1* g/q/2* g/r/3* g/s/4* s/t/5 s/t/6", 0, "5<4 6<3"},
		"a class that has one more keeps it":              {"g/p/1* g/q/2* s/r/3* s/r/4", 0, ""},
		"nobody waits in a class that has fewer":          {"g/p/1* g/q/2* g/r/3* s/s/4*", 0, ""},
		"a class gets none without a waiting container":   {"g/p/1* s/q/2* s/r/3* s/s/4", 0, ""},
		"a pod with all RMIDs of its class loses one":     {"g/p/1* g/p/2* g/p/3* g/q/4 g/q/5", 0, "4<3"},
		"a pod that has one more keeps it":                {"g/p/1* g/p/2* g/q/3* g/q/4", 0, ""},
		"a pod of another class that has more keeps them": {"g/p/1* g/p/2* s/q/3* s/r/4", 0, ""},
		"the largest pod of the largest class loses one":  {"g/p/1* g/q/2* g/q/3* g/r/4* s/t/5", 0, "5<3"},
		"a call takes away two at most":                   {"g/a/1* g/b/2* g/c/3* g/d/4* g/e/5* g/f/6* s/t/7 s/t/8 s/t/9", 0, "7<6 8<5"},
		"none is taken away while some are free":          {"g/p/1* g/q/2* g/r/3* g/s/4 s/t/5 s/t/6", 1, "5"},
		"none is taken away to be reserved for classes":   {"g/p/1* g/q/2* g/r/3* s/t/4", -1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, turn := range shareRMIDs(candidatesOf(test.candidates), test.free, mostTaken) {
				got = append(got, strings.TrimSuffix(turn.begin+"<"+turn.end, "<"))
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSharesBecomeFairAndThenStay calls shareRMIDs with random containers until it returns no turn. The test then checks the
// definition of max-min fairness: no class has a waiting container while another class has two RMIDs more. The same must hold
// for the pods of a class.
func TestSharesBecomeFairAndThenStay(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test repeats these numbers
		var all []candidate
		used := 0
		for i := range 1 + random.IntN(30) {
			c := candidate{fmt.Sprint(i), fmt.Sprint(random.IntN(4)), fmt.Sprint(random.IntN(5)), random.IntN(2) == 0}
			if c.monitored {
				used++
			}
			all = append(all, c)
		}
		budget := used + random.IntN(5)

		rounds := 0
		for ; ; rounds++ {
			turns := shareRMIDs(all, budget-used, mostTaken)
			if len(turns) == 0 {
				break
			}
			if rounds > len(all) {
				t.Fatalf("seed %d: shareRMIDs returns turns without end", seed)
			}
			used += take(t, all, turns)
		}
		if unfair := unfairness(all); unfair != "" || used > budget {
			t.Errorf("seed %d: %d of %d RMIDs are in use; %s", seed, used, budget, unfair)
		}
	}
}

// take carries out turns, and returns by how many RMIDs the number of free RMIDs decreases.
func take(t *testing.T, all []candidate, turns []turn) (more int) {
	t.Helper()
	set := func(id string, monitored bool) {
		c := &all[slices.IndexFunc(all, func(c candidate) bool { return c.id == id })]
		if c.monitored == monitored {
			t.Errorf("turns %v: the container %s changes nothing", turns, id)
		}
		c.monitored = monitored
	}

	for _, turn := range turns {
		if turn.end != "" {
			set(turn.end, false)
			more--
		}
		set(turn.begin, true)
		more++
	}

	return more
}

func unfairness(all []candidate) string {
	s := newSharing(all)
	for _, waits := range all {
		for class, has := range s.classes {
			if !waits.monitored && has-s.classes[waits.class] > 1 {
				return fmt.Sprintf("%+v waits, and class %s has %d", waits, class, has)
			}
		}
		for pod, has := range s.pods {
			if !waits.monitored && pod.class == waits.class && has-s.pods[podOfClass{waits.class, waits.pod}] > 1 {
				return fmt.Sprintf("%+v waits, and pod %+v has %d", waits, pod, has)
			}
		}
	}

	return ""
}
