// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// ErrRollback is the error for a change that failed and could not be undone.
var ErrRollback = errors.New("rolling back failed, so groups may be in an intermediate state")

func rollbackFailed(cause, err error) error { return fmt.Errorf("%w; %w: %w", cause, ErrRollback, err) }

func do(t resctrl.Tree, op Op, info resctrl.Info) error {
	switch op.Kind {
	case Create:
		return t.Create(op.Group)
	case Remove:
		return t.Remove(op.Group)
	case SetDevices:
		return t.SetDeviceTraffic(info.Schemas(resctrl.L3)[0], op.Schemata)
	}
	return t.Write(op.Group, info.ToWrite(op.Schemata))
}

// transact does all operations and returns the kernel's values of the wanted groups. If an operation fails, it restores
// the previous state. `devices` is the change of device traffic that the operations include, or nil.
func transact(
	t resctrl.Tree, ops []Op, before, wanted map[string]resctrl.Schemata, devices *deviceChange, info resctrl.Info,
) (effective map[string]resctrl.Schemata, err error) {
	for _, op := range ops {
		if err := do(t, op, info); err != nil {
			return nil, restore(t, err, before, wanted, devices)
		}
	}

	effective, err = readBack(t, wanted, info)
	if err != nil {
		return nil, restore(t, err, before, wanted, devices)
	}
	return effective, nil
}

// restore undoes a failed change as far as possible, and returns `cause`. It removes new groups, and then restores device traffic
// and the other groups, which need the CLOSIDs of the new groups. It skips caches that have disappeared with their CPUs meanwhile,
// because the kernel refuses a write with such a cache. If restore fails, the error also wraps ErrRollback.
func restore(t resctrl.Tree, cause error, before, wanted map[string]resctrl.Schemata, devices *deviceChange) error {
	m, err := readMachine(t)
	if err != nil {
		return rollbackFailed(cause, err)
	}

	var ops []Op
	now, former := m.configurable(), map[string]resctrl.Schemata{}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if before[name] == nil && now[name] != nil {
			ops = append(ops, Op{Kind: Remove, Group: name})
		}
	}
	ops = append(ops, devices.undo(m.info)...)
	for name, schemata := range before {
		former[name] = schemata.RestrictedTo(now[resctrl.Root])
	}
	ops = append(ops, Plan(now, former, m.info)...)

	for _, op := range ops {
		err = errors.Join(err, do(t, op, m.info))
	}
	if err != nil {
		return rollbackFailed(cause, err)
	}
	return cause
}

// readBack returns the kernel's values of the wanted groups. The kernel's values may differ from the wanted values only
// by rounding.
func readBack(t resctrl.Tree, wanted map[string]resctrl.Schemata, info resctrl.Info) (map[string]resctrl.Schemata, error) {
	effective := make(map[string]resctrl.Schemata, len(wanted))
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		got, err := t.Schemata(name)
		if err != nil {
			return nil, fmt.Errorf("read back %s: %w", resctrl.Describe(name), err)
		}

		if differences := info.Differences(wanted[name], got); len(differences) > 0 {
			err := fmt.Errorf("read back %s: the kernel's values differ from the written values: %s",
				resctrl.Describe(name), strings.Join(differences, ", "))
			return nil, orFault(err, name, wanted[name], got, info)
		}
		effective[name] = got.RestrictedTo(wanted[name])
	}
	return effective, nil
}

// rounded returns the values that the kernel will have after the wanted values are written.
func rounded(info resctrl.Info, wanted map[string]resctrl.Schemata) map[string]resctrl.Schemata {
	result := make(map[string]resctrl.Schemata, len(wanted))
	for name, values := range wanted {
		result[name] = info.Rounded(values)
	}
	return result
}
