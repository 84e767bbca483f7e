// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// UsageFile is a file of a cgroup. Add adds the values in the file to a reading.
type UsageFile struct {
	Name string
	Add  func(reading classes.Reading, data []byte)
}

// ReadUsage reads files in the directory of a cgroup. It passes over files that do not exist, and files of features that are switched off,
// such as pressure stall information with the kernel parameter psi=0. If nothing was read, it returns the error of `find` as well: the
// cgroup may have been removed meanwhile. With an error, the reading has the values that could be read.
func ReadUsage(from FileReader, dir string, files []UsageFile, find func() error) (classes.Reading, error) {
	reading := make(classes.Reading, 2*len(files))
	var problems []error
	for _, file := range files {
		data, err := from.ReadFile(dir + "/" + file.Name)
		switch {
		case err == nil:
			file.Add(reading, data)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EOPNOTSUPP):
			problems = append(problems, fmt.Errorf("measure %s: %w", file.Name, err))
		}
	}
	if len(reading) == 0 {
		problems = append(problems, find())
	}
	return reading, errors.Join(problems...)
}

// FileReader reads a file.
type FileReader interface {
	ReadFile(path string) ([]byte, error)
}

// Keyed returns the parser of a file with lines of the form "KEY VALUE". The map has the measure of each key. The parser
// adds up the values of keys that have the same measure, and converts those of keys like "usage_usec" to seconds.
func Keyed(measures map[string]string) func(classes.Reading, []byte) {
	return func(reading classes.Reading, data []byte) {
		found := 0
		for line := range bytes.Lines(data) {
			key, text, _ := bytes.Cut(line, []byte(" "))
			measure, known := measures[string(key)]
			if !known {
				continue
			}
			units := 1.0
			if bytes.HasSuffix(key, []byte("_usec")) {
				units = 1e6
			}
			if value, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64); err == nil {
				reading[classes.Series{Measure: measure}] += float64(value) / units
			}
			if found++; found == len(measures) {
				return // some files are long
			}
		}
	}
}

// Pressure returns the parser of a file of pressure stall information (Documentation/accounting/psi.rst). The map has the
// measures of the total times in seconds: "some" is the time in which some task waited, and "full" is the time in which
// all tasks waited.
func Pressure(measures map[string]string) func(classes.Reading, []byte) {
	return func(reading classes.Reading, data []byte) {
		for line := range bytes.Lines(data) {
			kind, rest, _ := bytes.Cut(line, []byte(" "))
			_, total, _ := bytes.Cut(rest, []byte("total="))
			measure, known := measures[string(kind)]
			if microseconds, err := strconv.ParseUint(string(bytes.TrimSpace(total)), 10, 64); err == nil && known {
				reading[classes.Series{Measure: measure}] = float64(microseconds) / 1e6
			}
		}
	}
}
