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

var readFiles = classes.Series{Measure: "files_read_total"}

// readTwoFiles measures a cgroup by two files, and counts those that were read in readFiles.
func readTwoFiles(host answers, lookUp func() error) (classes.Reading, error) {
	count := func(r classes.Reading, _ []byte) { r[readFiles]++ }
	return ReadUsage(host, "/pod", []UsageFile{{"memory.pressure", count}, {"memory.events", count}}, lookUp)
}

func TestAMissingFileOfADisabledFeatureIsNoError(t *testing.T) {
	for _, off := range []error{syscall.ENOENT, syscall.EOPNOTSUPP} {
		lookUp := func() error { t.Error("the cgroup is looked up, although a file was read"); return nil }
		reading, err := readTwoFiles(answers{"/pod/memory.pressure": off}, lookUp)
		if err != nil || reading[readFiles] != 1 {
			t.Errorf("%v: the reading is %v, error %v; want that of the other file", off, reading, err)
		}
	}
}

func TestTheErrorOfAReadNamesTheFile(t *testing.T) {
	_, err := readTwoFiles(answers{"/pod/memory.pressure": syscall.EIO}, nil)
	if !errors.Is(err, syscall.EIO) || !strings.HasPrefix(err.Error(), "measure memory.pressure: ") {
		t.Errorf("the error is %v", err)
	}
}

func TestIfNoFileCanBeReadTheCgroupIsLookedUp(t *testing.T) {
	lookUp := func() error { return classes.ErrEnded }
	_, err := readTwoFiles(answers{"/pod/memory.pressure": syscall.ENOENT, "/pod/memory.events": syscall.ENOENT}, lookUp)
	if !errors.Is(err, classes.ErrEnded) {
		t.Errorf("the error is %v, want that of the look-up", err)
	}
}
