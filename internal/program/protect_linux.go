// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"log/slog"

	"golang.org/x/sys/unix"
)

// Protect makes this process non-dumpable. Otherwise, a process of the same user in a container with the host's PID namespace could read
// the token in /proc/PID/root.
func Protect(log *slog.Logger) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		log.Warn("cannot make this process non-dumpable, so other processes of its user can reach its files under /proc", "error", err)
	}
}
