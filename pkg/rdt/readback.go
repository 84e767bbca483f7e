// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// rounded is how the kernel will round memory bandwidth: up, to multiples of the granularity (bw_validate). With mba_MBps
// kernels differ; there nothing is rounded, and readBack accepts both.
func (i Info) rounded(groups map[string]Schemata) map[string]Schemata {
	result := make(map[string]Schemata, len(groups))
	for name, schemata := range groups {
		rounded := schemata.clone()
		for id, value := range rounded[MB] {
			if i.Bandwidth != nil && i.Bandwidth.Unit != MBps {
				gran := i.Bandwidth.Granularity
				rounded[MB][id] = (value + gran - 1) / gran * gran
			}
		}
		result[name] = rounded
	}
	return result
}

// schemata of the groups for which is holds.
func (m *machine) schemata(is func(name string) bool) map[string]Schemata {
	result := map[string]Schemata{}
	for _, name := range m.names(is) {
		result[name] = m.groups[name].schemata
	}
	return result
}

// readBack returns what the kernel has of the wanted groups. Values may differ from the wanted ones only by rounding.
func (t tree) readBack(wanted map[string]Schemata, info Info) (map[string]Schemata, error) {
	effective := make(map[string]Schemata, len(wanted))
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		text, err := t.host.ReadFile(t.path(name, "schemata"))
		if err != nil {
			return nil, fmt.Errorf("read back %s: %w", groupText(name), err)
		}
		got, err := ParseSchemata(text)
		if err != nil {
			return nil, fmt.Errorf("read back %s: %w", groupText(name), err)
		}
		if differences := info.differences(wanted[name], got); len(differences) > 0 {
			return nil, fmt.Errorf("read back %s: the kernel took a write but has other values: %s",
				groupText(name), strings.Join(differences, ", "))
		}
		effective[name] = got.restrictedTo(wanted[name])
	}
	return effective, nil
}

func (i Info) differences(wanted, got Schemata) []string {
	var found []string
	for _, schema := range slices.Sorted(maps.Keys(wanted)) {
		for _, id := range slices.Sorted(maps.Keys(wanted[schema])) {
			want := wanted[schema][id]
			have, ok := got[schema][id]
			switch {
			case !ok:
				found = append(found, fmt.Sprintf("%s %d is gone", schema, id))
			case have == want:
			case schema == MB && i.Bandwidth != nil && have > want && have < want+i.Bandwidth.Granularity:
			default:
				found = append(found, fmt.Sprintf("%s %d is %s instead of %s", schema, id, formatValue(schema, have), formatValue(schema, want)))
			}
		}
	}
	return found
}

// exists says whether a group is there.
func (t tree) exists(name string) bool {
	_, err := t.host.ReadFile(t.path(name, "schemata"))
	return err == nil
}

// release removes a group that no class has any more, unless something is in it that lives.
func (t tree) release(name string, inUse bool) (done bool, err error) {
	if inUse {
		return false, nil
	}
	g, err := readGroup(t.host, t.path(name), true)
	switch {
	case err != nil && gone(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("%s: %w", groupText(name), err)
	case !g.empty && !t.allEnded(name):
		return false, nil
	}
	if err := t.do(Op{Kind: Remove, Group: name}); err != nil {
		return false, err
	}
	return true, nil
}
