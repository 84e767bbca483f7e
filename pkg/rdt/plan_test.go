// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// planInfo returns a CPU. The parameters `width` and `least` are the maximum and the minimum number of bits in a cache mask.
// If `sparse` is true, masks may have gaps. If `apart` is true, code and data have separate masks.
func planInfo(width, least int, sparse, apart bool) resctrl.Info {
	cache := resctrl.CacheInfo{Mask: 1<<width - 1, MinBits: least, Sparse: sparse, Domains: []int{0, 1}}
	info := resctrl.Info{CLOSIDs: 16, Caches: map[resctrl.Schema]resctrl.CacheInfo{"L3": cache},
		Bandwidth: &resctrl.BandwidthInfo{Unit: resctrl.Percent, Min: 10, Granularity: 10, Max: 100, Domains: []int{0, 1}}}
	if apart {
		info.Caches = map[resctrl.Schema]resctrl.CacheInfo{"L3CODE": cache, "L3DATA": cache}
	}
	return info
}

func schemataOf(t testing.TB, text string) resctrl.Schemata {
	t.Helper()
	schemata, err := resctrl.ParseSchemata([]byte(text))
	must(t, err)
	return schemata
}

func groupsOf(t testing.TB, texts map[string]string) map[string]resctrl.Schemata {
	t.Helper()
	groups := map[string]resctrl.Schemata{}
	for name, text := range texts {
		groups[name] = schemataOf(t, text)
	}
	return groups
}

// TestPlan compares the operations, in their order, that change the current groups to the wanted ones.
func TestPlan(t *testing.T) {
	for name, test := range map[string]struct {
		current, wanted map[string]string
		want            []string
	}{
		"nothing to do": {
			current: map[string]string{"": "L3:0=fff", "qos-a": "L3:0=f\nMB:0=50"},
			wanted:  map[string]string{"qos-a": "L3:0=f\nMB:0=50"},
		},
		"a new group is written when its place is free": {
			current: map[string]string{"qos-a": "L3:0=fff"},
			wanted:  map[string]string{"qos-a": "L3:0=0ff", "qos-0": "L3:0=f00\nMB:0=40"},
			want: []string{"create resctrl group qos-0", `write "L3:0=ff" to resctrl group qos-a`,
				`write "L3:0=f00\nMB:0=40" to resctrl group qos-0`},
		},
		"groups that shrink come before groups that grow": {
			current: map[string]string{"qos-a": "L3:0=00f\nMB:0=20", "qos-b": "L3:0=ff0\nMB:0=80"},
			wanted:  map[string]string{"qos-a": "L3:0=0ff\nMB:0=60", "qos-b": "L3:0=f00\nMB:0=40"},
			want:    []string{`write "L3:0=f00\nMB:0=40" to resctrl group qos-b`, `write "L3:0=ff\nMB:0=60" to resctrl group qos-a`},
		},
		"a group that moves first shrinks to the bits that it keeps": {
			current: map[string]string{"qos-a": "L3:0=0ff"},
			wanted:  map[string]string{"qos-a": "L3:0=ff0"},
			want:    []string{`write "L3:0=f0" to resctrl group qos-a`, `write "L3:0=ff0" to resctrl group qos-a`},
		},
		"groups that swap go by way of free bits": {
			current: map[string]string{"qos-a": "L3:0=00f", "qos-b": "L3:0=0f0"},
			wanted:  map[string]string{"qos-a": "L3:0=0f0", "qos-b": "L3:0=00f"},
			want: []string{`write "L3:0=1" to resctrl group qos-a`, `write "L3:0=e" to resctrl group qos-b`,
				`write "L3:0=f0" to resctrl group qos-a`, `write "L3:0=f" to resctrl group qos-b`},
		},
		"groups that swap single bits overlap for one write": {
			current: map[string]string{"qos-a": "L3:0=1", "qos-b": "L3:0=2"},
			wanted:  map[string]string{"qos-a": "L3:0=2", "qos-b": "L3:0=1"},
			want:    []string{`write "L3:0=2" to resctrl group qos-a`, `write "L3:0=1" to resctrl group qos-b`},
		},
		"caches that change together are one write": {
			current: map[string]string{"qos-a": "L3:0=fff;1=fff\nMB:0=100;1=100"},
			wanted:  map[string]string{"qos-a": "L3:0=f;1=ff\nMB:0=50;1=100"},
			want:    []string{`write "L3:0=f;1=ff\nMB:0=50" to resctrl group qos-a`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, op := range Plan(groupsOf(t, test.current), groupsOf(t, test.wanted), planInfo(12, 1, false, false)) {
				got = append(got, describeOp(op))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// checkPlan follows a plan step by step. The error names the step that breaks a guarantee. `forced` is true if two groups
// overlapped at some step of the plan, although they overlap neither before nor after the change.
func checkPlan(current, wanted map[string]resctrl.Schemata, info resctrl.Info) (forced bool, err error) {
	now := map[string]resctrl.Schemata{}
	for name, schemata := range current {
		now[name] = maps.Clone(schemata)
	}

	for _, op := range Plan(current, wanted, info) {
		switch op.Kind {
		case Create:
			if now[op.Group] != nil {
				return false, fmt.Errorf("the plan has the operation %s, but the group exists", op)
			}
			// A new group has no tasks, so the masks that it gets from the kernel matter only after its first write.
			now[op.Group] = resctrl.Schemata{}
			for domain := range wanted[op.Group] {
				if domain.Schema == resctrl.MB {
					now[op.Group][domain] = info.Bandwidth.Max
				}
			}
			continue
		case Remove:
			return false, fmt.Errorf("the plan has the operation %s, which nothing requires", op)
		}
		if now[op.Group] == nil {
			return false, fmt.Errorf("the plan has the operation %s, but the group does not exist", op)
		}
		maps.Copy(now[op.Group], op.Schemata)
		if err := checkWrite(op, current, wanted, info); err != nil {
			return false, err
		}
		if overlap := newOverlap(now, current, wanted); overlap != "" {
			forced = true
		}
	}

	for name := range wanted {
		if diff := cmp.Diff(wanted[name].String(), now[name].String()); diff != "" {
			return false, fmt.Errorf("after the plan, the schemata of %s differ from the wanted ones: %s", name, diff)
		}
	}

	return forced, nil
}

func describeOp(op Op) string {
	if op.Kind == Write {
		return fmt.Sprintf("write %q to %s", strings.TrimSpace(op.Schemata.String()), resctrl.Describe(op.Group))
	}
	return fmt.Sprintf("%s %s", op.Kind, resctrl.Describe(op.Group))
}

func checkWrite(op Op, current, wanted map[string]resctrl.Schemata, info resctrl.Info) error {
	for domain, value := range op.Schemata {
		old, last := current[op.Group][domain], wanted[op.Group][domain]
		switch {
		case domain.Schema == resctrl.MB && value > max(old, last):
			return fmt.Errorf("%s: the bandwidth is higher than before the plan (%d) and after it (%d)", op, old, last)
		case domain.Schema == resctrl.MB:
		case value&^old != 0 && value&^last != 0:
			return fmt.Errorf("%s: the mask is wider than before the plan (%x) and after it (%x)", op, old, last)
		case info.Caches[domain.Schema].Check(value) != nil:
			return fmt.Errorf("%s: %w", op, info.Caches[domain.Schema].Check(value))
		}
	}
	return nil
}

// newOverlap describes cache bits that two groups share now, although they share none before and none after the change. It returns
// "" if there are none.
func newOverlap(now, current, wanted map[string]resctrl.Schemata) string {
	for a := range now {
		for b := range now {
			if a >= b {
				continue
			}
			common := overlapsByUnit(now[a], now[b])
			before := overlapsByUnit(current[a], current[b])
			after := overlapsByUnit(final(a, current, wanted), final(b, current, wanted))
			for unit := range common {
				if !before[unit] && !after[unit] {
					return fmt.Sprint(a, b, unit)
				}
			}
		}
	}

	return ""
}

// final returns the schemata that a group has after the change.
func final(name string, current, wanted map[string]resctrl.Schemata) resctrl.Schemata {
	if schemata, ok := wanted[name]; ok {
		return schemata
	}
	return current[name]
}

func overlapsByUnit(a, b resctrl.Schemata) map[string]bool {
	found := map[string]bool{}
	for domain, value := range a {
		for other, theirs := range b {
			level := domain.Schema.Level()
			if level != "" && level == other.Schema.Level() && domain.ID == other.ID && value&theirs != 0 {
				found[fmt.Sprint(domain.Schema, other.Schema, domain.ID)] = true
			}
		}
	}
	return found
}

func randomGroups(random *rand.Rand, info resctrl.Info, count int) map[string]resctrl.Schemata {
	groups := map[string]resctrl.Schemata{}
	for range count {
		schemata := resctrl.Schemata{}
		for schema, cache := range info.Caches {
			for _, id := range cache.Domains {
				schemata[resctrl.Domain{Schema: schema, ID: id}] = randomMask(random, cache)
			}
		}
		for _, id := range info.Bandwidth.Domains {
			schemata[resctrl.Domain{Schema: resctrl.MB, ID: id}] = uint64(1+random.IntN(10)) * 10
		}
		groups[fmt.Sprintf("qos-%d", random.IntN(6))] = schemata
	}

	return groups
}

func randomMask(random *rand.Rand, cache resctrl.CacheInfo) uint64 {
	for {
		mask := random.Uint64() & cache.Mask
		if !cache.Sparse {
			width := bits.Len64(cache.Mask)
			low := random.IntN(width)
			mask = (1<<(1+random.IntN(width-low)) - 1) << low
		}
		if cache.Check(mask) == nil {
			return mask
		}
	}
}

func FuzzPlan(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, uint8(12), uint8(1), false, false)
		f.Add(seed, uint8(6), uint8(2), false, true)
		f.Add(seed, uint8(12), uint8(0), true, false)
	}

	f.Fuzz(func(t *testing.T, seed uint64, width, least uint8, sparse, apart bool) {
		if width < 4 || width > 32 || least > 2 {
			t.Skip()
		}
		random := rand.New(rand.NewPCG(seed, 0))
		info := planInfo(int(width), int(least), sparse, apart)
		for range 20 {
			current := randomGroups(random, info, 1+random.IntN(5))
			wanted := randomGroups(random, info, 1+random.IntN(5))
			if _, err := checkPlan(current, wanted, info); err != nil {
				t.Fatalf("%v\ncurrent %v\nwanted %v", err, current, wanted)
			}
		}
	})
}

// TestPartitionsThatChangePlacesNeverOverlap checks that Plan avoids every overlap if the masks of the groups are
// disjoint and have at least two bits each.
func TestPartitionsThatChangePlacesNeverOverlap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	info := planInfo(20, 1, false, false)
	for range 2000 {
		current, wanted := disjointGroups(random), disjointGroups(random)
		forced, err := checkPlan(current, wanted, info)
		if err != nil || forced {
			t.Fatalf("overlap %v, %v\ncurrent %v\nwanted %v\nplan %v", forced, err, current, wanted, Plan(current, wanted, info))
		}
	}
}

// disjointGroups divides 20 bits among up to 5 groups, in any order. Each group gets at least 2 bits.
func disjointGroups(random *rand.Rand) map[string]resctrl.Schemata {
	groups, low := map[string]resctrl.Schemata{}, 0
	for _, n := range random.Perm(5)[:1+random.IntN(5)] {
		low += random.IntN(2)
		size := 2 + random.IntN(2)
		schemata := resctrl.Schemata{}
		schemata[resctrl.Domain{Schema: "L3", ID: 0}] = (1<<size - 1) << low
		groups[fmt.Sprintf("qos-%d", n)] = schemata
		low += size
	}
	return groups
}
