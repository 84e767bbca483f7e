// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package objectbudget_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/objectbudget"
)

// fit divides a list of items. An item is written as its namespace and as many characters as it has bytes, e.g. "a:xxx".
func fit(list string, budget, number int) (kept, omitted string) {
	k, o := objectbudget.Fit(strings.Fields(list), budget, number, func(item string) (string, int) {
		namespace, content, _ := strings.Cut(item, ":")
		return namespace, len(content)
	})
	return strings.Join(k, " "), strings.Join(o, " ")
}

func TestABudgetIsSharedBetweenNamespaces(t *testing.T) {
	for _, test := range []struct {
		name, list     string
		budget, number int
		kept, omitted  string
	}{
		{"an empty list", "", 10, 10, "", ""},
		{"all items, if they fit", "a:xx b:xx a:x", 5, 10, "a:xx b:xx a:x", ""},
		{"the first items of the only namespace", "a:xx a:xx a:xx", 5, 10, "a:xx a:xx", "a:xx"},
		{"a namespace that needs little gets all that it needs, and the other one gets the rest", "a:xx a:xx a:xx a:xx b:xx", 8, 10, "a:xx a:xx a:xx b:xx", "a:xx"},
		{"two namespaces that need too much get half each", "a:xx a:xx a:xx b:xx b:xx b:xx", 8, 10, "a:xx a:xx b:xx b:xx", "a:xx b:xx"},
		{"a large item does not keep out a small one", "a:xxxxxxx a:xx", 5, 10, "a:xx", "a:xxxxxxx"},
		{"the number of items is shared, too", "a:x a:x a:x a:x b:x b:x", 400, 4, "a:x a:x b:x b:x", "a:x a:x"},
	} {
		t.Run(test.name, func(t *testing.T) {
			kept, omitted := fit(test.list, test.budget, test.number)
			if kept != test.kept || omitted != test.omitted {
				t.Errorf("kept %q and omitted %q, want %q and %q", kept, omitted, test.kept, test.omitted)
			}
		})
	}
}

func FuzzABudgetIsNeverExceeded(f *testing.F) {
	f.Add("a:xxx b:x a:xxxx", uint16(5), uint16(3))
	f.Fuzz(func(t *testing.T, list string, budget, number uint16) {
		if number == 0 {
			return
		}
		kept, omitted := fit(list, int(budget), int(number))
		size := 0
		for item := range strings.FieldsSeq(kept) {
			_, content, _ := strings.Cut(item, ":")
			size += len(content)
		}
		if size > int(budget) || budget > 0 && len(strings.Fields(kept)) > int(number) {
			t.Errorf("kept %q of %q", kept, list)
		}
		all, want := slices.Sorted(strings.FieldsSeq(kept+" "+omitted)), slices.Sorted(strings.FieldsSeq(list))
		if !slices.Equal(all, want) {
			t.Errorf("kept %q and omitted %q of %q", kept, omitted, list)
		}
	})
}

func TestTheSizeOfAnItemIsThatOfItsJSONWithAComma(t *testing.T) {
	if got := objectbudget.Size("<x>"); got != len(`"\u003cx\u003e",`) {
		t.Errorf("the size is %d", got)
	}
}
