// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"testing"
	"unsafe"
)

// deep calls itself `calls` times, with a frame of more than 512 bytes each time.
//
//go:noinline
func deep(calls int) (sum int) {
	var frame [512]byte
	frame[calls] = byte(calls)
	if calls > 0 {
		sum = deep(calls - 1)
	}
	return sum + int(frame[calls])
}

func TestAStackThatHasGrownDoesNotMove(t *testing.T) {
	moved := make(chan bool)
	go func() {
		Grow()
		var local int
		before := uintptr(unsafe.Pointer(&local))
		deep(size/1024 - 2) // needs more than the 2 KiB of a new goroutine, and less than Grow provides
		moved <- uintptr(unsafe.Pointer(&local)) != before
	}()
	if <-moved {
		t.Error("the stack of the goroutine was copied")
	}
}
