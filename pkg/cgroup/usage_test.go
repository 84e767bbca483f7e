// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// answers has the errors of reads, by path. Every other file contains 7.
type answers map[string]error

func (a answers) ReadFile(path string) ([]byte, error) {
	if err := a[path]; err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return []byte("7"), nil
}

// TestAMissingFileOfADisabledFeatureIsNoError: the reading has the values of the other files. Only if no file has a
// value, ReadUsage looks the cgroup up again, because it may be gone.
func TestAMissingFileOfADisabledFeatureIsNoError(t *testing.T) {
	counted := classes.Series{Measure: "counted_total"}
	files := []UsageFile{
		{"memory.pressure", func(r classes.Reading, _ []byte) { r[counted]++ }},
		{"memory.events", func(r classes.Reading, _ []byte) { r[counted]++ }},
	}
	found := func() error { t.Error("the cgroup is looked up again"); return nil }
	for _, off := range []error{syscall.ENOENT, syscall.EOPNOTSUPP} {
		reading, err := ReadUsage(answers{"/pod/memory.pressure": off}, "/pod", files, found)
		if err != nil || reading[counted] != 1 {
			t.Errorf("%v: the reading is %v, error %v; want that of the other file", off, reading, err)
		}
	}
	if _, err := ReadUsage(answers{"/pod/memory.pressure": syscall.EIO}, "/pod", files, found); !errors.Is(err, syscall.EIO) ||
		!strings.HasPrefix(err.Error(), "measure memory.pressure: ") {
		t.Errorf("the error is %v", err)
	}

	gone := func() error { return classes.ErrEnded }
	if _, err := ReadUsage(answers{"/pod/memory.pressure": syscall.ENOENT, "/pod/memory.events": syscall.ENOENT}, "/pod", files, gone); !errors.Is(err, classes.ErrEnded) {
		t.Errorf("the error is %v, want that of the removed cgroup", err)
	}
}
