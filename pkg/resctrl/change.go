// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Create makes a control group or a monitoring group. The kernel gives a new control group all cache that is not
// exclusive to other groups, and the full memory bandwidth. The error wraps the kernel's errno: ENOSPC if there is no
// free CLOSID or RMID, EBUSY if the RMIDs of removed groups are not free yet, EEXIST if the group exists.
func (t Tree) Create(group string) error {
	before := t.status()
	err := t.host.Mkdir(t.path(group))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("create %s: the RMIDs of removed groups are not free yet; try again in a while: %w", Describe(group), t.explain(err, before))
	}
	return fmt.Errorf("create %s: %w", Describe(group), t.explain(err, before))
}

// Remove removes a group. The kernel moves the tasks of a control group to the root group, and those of a monitoring
// group to its control group.
func (t Tree) Remove(group string) error {
	before := t.status()
	if err := t.host.Remove(t.path(group)); err != nil {
		return fmt.Errorf("remove %s: %w", Describe(group), t.explain(err, before))
	}
	return nil
}

// Rename moves a monitoring group, with its tasks, to another control group. Kernels before Linux 6.5 refuse that.
func (t Tree) Rename(from, to string) error {
	if err := t.host.Rename(t.path(from), t.path(to)); err != nil {
		return fmt.Errorf("move %s to %s: %w", Describe(from), to, t.explain(err, ""))
	}
	return nil
}

// Write sets some values of a control group, in one write(2). The kernel rounds bandwidth (Info.Rounded). If the kernel
// refuses a value, it sets none of the values. Under mba_MBps, however, it has then set the bandwidths before the
// refused one.
func (t Tree) Write(group string, values Schemata) error {
	if err := t.host.WriteFile(t.path(group, "schemata"), []byte(values.String())); err != nil {
		return fmt.Errorf("write %q to %s: %w", strings.TrimSpace(values.String()), Describe(group), t.explain(err, ""))
	}
	return nil
}

// status returns the content of info/last_cmd_status, in which the kernel explains why it refused the latest
// operations.
func (t Tree) status() string {
	text, err := t.host.ReadFile(t.path("info", "last_cmd_status"))
	if err != nil || string(text) == "ok\n" {
		return ""
	}
	return string(text)
}

// explain adds the text of last_cmd_status to an error. Creating or removing a group appends to this text. For these
// operations, `before` is the earlier text, which explain leaves out. A write replaces the text, so `before` is empty.
func (t Tree) explain(err error, before string) error {
	text := strings.TrimSpace(strings.TrimPrefix(t.status(), before))
	if text == "" {
		return err
	}
	return fmt.Errorf("%w (kernel: %s)", err, strings.ReplaceAll(text, "\n", "; "))
}
