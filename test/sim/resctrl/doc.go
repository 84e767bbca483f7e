// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resctrl simulates the resctrl filesystem of Linux 6.12 in memory: errnos, info/last_cmd_status, rounding,
// limited CLOSIDs and RMIDs, exclusive groups, moves of tasks, and injected faults.
//
// The same table of operations runs against the simulation and against a kernel (Operations, Run, Disagreements).
package resctrl
