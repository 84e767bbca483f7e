// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nobody drops the privileges of a test that runs as root, so that file permissions apply to it.
package nobody

import (
	"syscall"
	"testing"
)

// uid is the ID of the user nobody, which owns no files.
const uid = 65534

// Become drops the privileges of the whole process, until the returned function is called or the test ends. If the process does not run
// as root, Become does nothing. No other test may run meanwhile.
func Become(t testing.TB) (root func()) {
	t.Helper()
	before := syscall.Geteuid()
	if before != 0 {
		return func() {}
	}
	set := func(uid int) {
		if err := syscall.Setresuid(-1, uid, -1); err != nil {
			t.Errorf("become user %d: %v", uid, err)
		}
	}
	set(uid)
	t.Cleanup(func() { set(before) })
	return func() { set(before) }
}
