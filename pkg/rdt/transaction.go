// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
)

// ErrRollback is the error for a change that failed and could not be undone.
var ErrRollback = errors.New("rolling back failed, so groups may be in an intermediate state")

func rollbackFailed(cause, err error) error { return fmt.Errorf("%w; %w: %w", cause, ErrRollback, err) }

// status returns the content of info/last_cmd_status, in which the kernel explains why it refused the latest
// operations.
func (t tree) status() string {
	text, err := t.host.ReadFile(t.path("info", "last_cmd_status"))
	if err != nil || string(text) == "ok\n" {
		return ""
	}
	return string(text)
}

// explain adds the text of last_cmd_status to an error. Creating or removing a group appends to this text. For these
// operations, before is the earlier text, which explain leaves out. A write replaces the text, so before is empty.
func (t tree) explain(err error, before string) error {
	text := strings.TrimSpace(strings.TrimPrefix(t.status(), before))
	if text == "" {
		return err
	}
	return fmt.Errorf("%w (kernel: %s)", err, strings.ReplaceAll(text, "\n", "; "))
}

func (t tree) do(op Op) error {
	var err error
	before := ""
	switch op.Kind {
	case Create:
		before = t.status()
		err = t.host.Mkdir(t.path(op.Group))
	case Remove:
		before = t.status()
		err = t.host.Remove(t.path(op.Group))
	case Write:
		err = t.host.WriteFile(t.path(op.Group, "schemata"), []byte(op.Schemata.String()))
	}

	switch {
	case err == nil:
		return nil
	case op.Kind == Create && errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("%s: the RMIDs of removed groups are not free yet; try again in a while: %w", op, t.explain(err, before))
	}
	return fmt.Errorf("%s: %w", op, t.explain(err, before))
}

func (o Op) String() string {
	if o.Kind == Write {
		return fmt.Sprintf("write %q to %s", strings.TrimSpace(o.Schemata.String()), groupText(o.Group))
	}
	return fmt.Sprintf("%s %s", o.Kind, groupText(o.Group))
}

func groupText(name string) string {
	if name == rootGroup {
		return "resctrl's root group"
	}
	return "resctrl group " + name
}

// transact does all operations and returns the kernel's values of the wanted groups. If an operation fails, it restores
// the previous state.
func (t tree) transact(ops []Op, before, wanted map[string]Schemata, info Info) (effective map[string]Schemata, err error) {
	for _, op := range ops {
		if err := t.do(op); err != nil {
			return nil, t.restore(err, before, wanted)
		}
	}

	effective, err = t.readBack(wanted, info)
	if err != nil {
		return nil, t.restore(err, before, wanted)
	}
	return effective, nil
}

// restore undoes a failed change as far as possible, and returns cause. It removes new groups, and restores the other
// groups with the operations from Plan. If restore fails, the error also wraps ErrRollback.
func (t tree) restore(cause error, before, wanted map[string]Schemata) error {
	m, err := readMachine(t)
	if err != nil {
		return rollbackFailed(cause, err)
	}

	var ops []Op
	now := m.configurable()
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if before[name] == nil && now[name] != nil {
			ops = append(ops, Op{Kind: Remove, Group: name})
		}
	}
	ops = append(ops, Plan(now, before, m.info)...)

	for _, op := range ops {
		err = errors.Join(err, t.do(op))
	}
	if err != nil {
		return rollbackFailed(cause, err)
	}
	return cause
}

// rounded rounds memory bandwidth up to a multiple of the granularity, as the kernel does (bw_validate). With mba_MBps,
// only some kernels round. In this case rounded changes nothing, and readBack accepts rounded and exact values.
func (i Info) rounded(groups map[string]Schemata) map[string]Schemata {
	result := make(map[string]Schemata, len(groups))
	for name, schemata := range groups {
		result[name] = maps.Clone(schemata)
		for domain, value := range schemata {
			if domain.Schema == MB && i.Bandwidth != nil && i.Bandwidth.Unit != MBps {
				gran := i.Bandwidth.Granularity
				result[name][domain] = (value + gran - 1) / gran * gran
			}
		}
	}
	return result
}

// readBack returns the kernel's values of the wanted groups. The kernel's values may differ from the wanted values only
// by rounding.
func (t tree) readBack(wanted map[string]Schemata, info Info) (map[string]Schemata, error) {
	effective := make(map[string]Schemata, len(wanted))
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		got, err := t.readSchemata(name)
		if err != nil {
			return nil, fmt.Errorf("read back %s: %w", groupText(name), err)
		}

		if differences := info.differences(wanted[name], got); len(differences) > 0 {
			return nil, fmt.Errorf("read back %s: the kernel's values differ from the written values: %s",
				groupText(name), strings.Join(differences, ", "))
		}
		effective[name] = got.restrictedTo(wanted[name])
	}
	return effective, nil
}

func (i Info) differences(wanted, got Schemata) []string {
	var found []string
	for _, domain := range wanted.domains() {
		want := wanted[domain]
		have, ok := got[domain]

		roundedUp := domain.Schema == MB && i.Bandwidth != nil && have > want && have < want+i.Bandwidth.Granularity
		switch {
		case !ok:
			found = append(found, fmt.Sprintf("%s is gone", domain))
		case have != want && !roundedUp:
			found = append(found, fmt.Sprintf("%s is %s instead of %s", domain, got.value(domain), wanted.value(domain)))
		}
	}
	return found
}
