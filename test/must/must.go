// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package must ends a test when a step fails that the test only needs, and does not check.
package must

import "testing"

// Get returns the result of a step, and ends the test if the step failed: data := must.Get(os.ReadFile(name))(t).
func Get[T any](result T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
}

// Do ends the test if a step failed: must.Do(t, os.Mkdir(dir, 0o700)).
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
