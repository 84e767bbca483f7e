// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
)

// KernelError is a refusal by resctrl: the errno, and what info/last_cmd_status says of it.
type KernelError struct {
	Err error
	// Status is the kernel's explanation; empty if it gave none.
	Status string
}

func (e *KernelError) Error() string {
	if e.Status == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v (kernel: %s)", e.Err, e.Status)
}

func (e *KernelError) Unwrap() error { return e.Err }

// RollbackError says that not even the previous state could be restored.
type RollbackError struct {
	// Err is why there was something to roll back, Rollback what then failed.
	Err, Rollback error
}

func (e *RollbackError) Error() string {
	return fmt.Sprintf("%v; and rolling back failed, so that groups may be left in between: %v", e.Err, e.Rollback)
}

func (e *RollbackError) Unwrap() []error { return []error{e.Err, e.Rollback} }

// tree does the writing below one mount point.
type tree struct {
	host  FS
	point string
}

func (t tree) path(elements ...string) string {
	return path.Join(append([]string{t.point}, elements...)...)
}

// status is info/last_cmd_status: what the kernel has to say of its last refusals.
func (t tree) status() string {
	text, err := t.host.ReadFile(t.path("info", "last_cmd_status"))
	if err != nil || string(text) == "ok\n" {
		return ""
	}
	return string(text)
}

// explain adds what the kernel says of a refusal; before is what it said before the operation. Writes begin the text
// anew, while making and removing groups adds to it.
func (t tree) explain(err error, before string) error {
	text := strings.TrimSpace(strings.TrimPrefix(t.status(), before))
	return &KernelError{Err: err, Status: strings.ReplaceAll(text, "\n", "; ")}
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
		return fmt.Errorf("%s: monitoring IDs of groups that were removed are not free yet; try again in a while: %w", op, t.explain(err, before))
	}
	return fmt.Errorf("%s: %w", op, t.explain(err, before))
}

// happened says whether a failed operation has had an effect; before are the schemata from before it. Refusals have none,
// but for memory bandwidth under mba_MBps, which the kernel sets as it reads.
func (t tree) happened(op Op, before Schemata) bool {
	g, err := readGroup(t.host, t.path(op.Group), false)
	switch op.Kind {
	case Create:
		return err == nil
	case Remove:
		return err != nil && gone(err)
	}
	return err != nil || g.schemata.restrictedTo(op.Schemata).String() != before.restrictedTo(op.Schemata).String()
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

// undo are the operations that lead from after op to before it, given the schemata before.
func undo(op Op, before map[string]Schemata) []Op {
	switch op.Kind {
	case Create:
		return []Op{{Kind: Remove, Group: op.Group}}
	case Remove:
		return []Op{{Kind: Create, Group: op.Group}, {Kind: Write, Group: op.Group, Schemata: before[op.Group]}}
	}
	if _, ok := before[op.Group]; !ok {
		return nil // a new group, which will be removed
	}
	return []Op{{Kind: Write, Group: op.Group, Schemata: before[op.Group].restrictedTo(op.Schemata)}}
}

// transact does all operations and the final check, or none. The way back is the way there, reversed, so that what Plan
// promises holds on it, too.
func (t tree) transact(ops []Op, before map[string]Schemata, verify func() error) error {
	now := make(map[string]Schemata, len(before))
	for name, schemata := range before {
		now[name] = schemata.clone()
	}
	var back [][]Op
	for _, op := range ops {
		reverse := undo(op, now)
		if err := t.do(op); err != nil {
			if t.happened(op, now[op.Group]) {
				back = append(back, reverse)
			}
			return t.rollBack(err, back)
		}
		back = append(back, reverse)
		if current, ok := now[op.Group]; ok && op.Kind == Write {
			current.overlay(op.Schemata)
		}
	}
	if err := verify(); err != nil {
		return t.rollBack(err, back)
	}
	return nil
}

// rollBack goes on after a failure: whatever can be restored, is.
func (t tree) rollBack(cause error, back [][]Op) error {
	var problems []error
	slices.Reverse(back)
	for _, ops := range back {
		for _, op := range ops {
			if err := t.do(op); err != nil {
				problems = append(problems, err)
			}
		}
	}
	if len(problems) > 0 {
		return &RollbackError{Err: cause, Rollback: errors.Join(problems...)}
	}
	return cause
}
