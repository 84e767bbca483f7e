// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stack grows the stacks of goroutines.
package stack

// size is the size of the stack that a hook of the runtime needs.
const size = 10 << 10

// Grow grows the stack of a new goroutine to 16 KiB. Otherwise the Go runtime doubles the stack each time it is full, and copies it, which
// takes the longer the more functions have been called. A new goroutine has 2 KiB.
//
//go:noinline
func Grow() {
	var frame [size]byte
	use(&frame)
}

//go:noinline
func use(*[size]byte) {}
