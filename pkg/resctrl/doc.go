// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resctrl reads and changes the kernel's resctrl filesystem, which divides caches and memory bandwidth between
// groups of tasks, and monitors what they use (Documentation/filesystems/resctrl.rst).
//
// Find returns the mounted filesystem as a Tree. A group is named by its path below the mount point: Root, NAME for a
// control group, and MonitoringGroup(NAME, PART) for a monitoring group in it. The package knows nothing of what groups
// are for, keeps no state and takes no locks, so callers serialize their changes.
//
// An error wraps the kernel's errno. After a failed change, it also has the kernel's explanation from info/last_cmd_status. Callers
// can tell errors apart by NotExist, ErrEnded, ErrUnmounted and *Unavailable.
package resctrl
