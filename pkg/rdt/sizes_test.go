// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// TestCacheIsDividedBySizes uses an L3 of 16 MiB in 12 bits, so that a bit has 1365.33 KiB. Sizes are rounded up to whole bits.
func TestCacheIsDividedBySizes(t *testing.T) {
	for name, test := range map[string]struct {
		partitions string
		want       map[string]string // L3 0 of each class
		message    string            // the end of the condition, or the error
	}{
		"sizes of classes": {
			`p: {l3Allocation: "100%", classes: {a: {l3Allocation: 4MiB}, b: {l3Allocation: 512KiB}, c: {}}}`,
			map[string]string{"a": "7", "b": "1", "c": "fff"}, "a has 4MiB of L3 for 4MiB, b has 1365KiB of L3 for 512KiB"},
		"sizes of partitions": {
			`p: {l3Allocation: 5MiB, classes: {a: {}}}, q: {l3Allocation: {all: 4MiB}, classes: {b: {l3Allocation: "50%"}}}`,
			map[string]string{"a": "f", "b": "30"}, "a has 5461KiB of L3 for 5MiB"},
		"the whole cache": {
			`p: {l3Allocation: 16MiB, classes: {a: {l3Allocation: 16384KiB}}}`, map[string]string{"a": "fff"}, "a has 16MiB of L3 for 16384KiB"},
		"a class larger than its partition": {
			`p: {l3Allocation: "50%", classes: {a: {l3Allocation: 9MiB}}}`, nil,
			`class "a": L3: 9MiB is more than its partition has (8MiB); write a smaller size`},
		"a partition larger than the cache": {
			`p: {l3Allocation: 64MiB, classes: {a: {}}}`, nil,
			`L3 0, unified: the partitions (p 64MiB) do not fit into the cache: it has 16MiB in 12 equal parts, and each size is rounded up to whole parts; reduce the sizes`},
		"two partitions that are together larger than the cache": {
			`p: {l3Allocation: 8MiB, classes: {a: {}}}, q: {l3Allocation: 8193KiB, classes: {b: {}}}`, nil,
			`L3 0, unified: the partitions (p 8MiB, q 8193KiB) do not fit into the cache: it has 16MiB in 12 equal parts, and each size is rounded up to whole parts; reduce the sizes`},
	} {
		t.Run(name, func(t *testing.T) {
			spec := sim.IntelSpec()
			spec.L2 = nil
			b := newBackend(sim.New(spec), nil)
			config := parse(t, "{partitions: {"+test.partitions+"}}")
			err := b.Check(t.Context(), config)
			if test.want == nil {
				if err == nil || err.Error() != test.message {
					t.Errorf("check: %v\nwant: %s", err, test.message)
				}
				return
			}
			must(t, err)
			must(t, b.Apply(t.Context(), config))
			got := map[string]string{}
			for class, values := range b.Values() {
				masks := strings.TrimPrefix(values["L3"], "0=")
				got[class], _, _ = strings.Cut(masks, ";")
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("masks (-want +got):\n%s", diff)
			}
			if got := conditionOf(b.Status(), ConditionCacheSizes); !got.Healthy || !strings.HasSuffix(got.Message, ": "+test.message) {
				t.Errorf("the condition is %+v, want %q", got, test.message)
			}
		})
	}
}

func TestASizeIsAWholePositiveNumberOfKiBOrMiB(t *testing.T) {
	for _, share := range []string{"0MiB", "4MB", "1.5MiB", "-1KiB"} {
		_, err := parseConfig(`{partitions: {p: {l3Allocation: "` + share + `", classes: {a: {}}}}}`)
		if err == nil || !strings.Contains(err.Error(), "is not a share of a cache") {
			t.Errorf("%s: %v", share, err)
		}
	}
}

func TestPartitionsWithSizesAndPerCentAreRefused(t *testing.T) {
	mixed := `{partitions: {p: {l3Allocation: 4MiB, classes: {a: {}}}, q: {l3Allocation: "50%", classes: {b: {}}}}}`
	if err := parse(t, mixed).indivisible(resctrl.L3); err == nil || !strings.Contains(err.Error(), "all partitions per cent, or all of them sizes or masks") {
		t.Errorf("got %v", err)
	}
}

// TestSharesAreAddedUpWhereARangeOfCacheIDsEnds: cache 1 is the first one after those for which partition a has its own share.
func TestSharesAreAddedUpWhereARangeOfCacheIDsEnds(t *testing.T) {
	ends := `{partitions: {a: {l3Allocation: {all: "60%", "0": "10%"}}, b: {l3Allocation: {"0-1": "50%"}}}}`
	if err := parse(t, ends).indivisible(resctrl.L3); err == nil || !strings.Contains(err.Error(), "L3 1, unified: the shares of the partitions (a 60%, b 50%) add up to 110%") {
		t.Errorf("got %v", err)
	}
}
