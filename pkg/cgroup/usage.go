// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
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
	reading := classes.Reading{}
	var problems []error
	for _, file := range files {
		data, err := from.ReadFile(path.Join(dir, file.Name))
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

// ParsePressure returns the total times in a file of pressure stall information, in seconds: "some" is the time in which some task waited,
// and "full" that in which all tasks did (Documentation/accounting/psi.rst).
func ParsePressure(data []byte) map[string]float64 {
	totals := map[string]float64{}
	for line := range strings.Lines(string(data)) {
		kind, rest, _ := strings.Cut(line, " ")
		_, total, _ := strings.Cut(rest, "total=")
		if microseconds, err := strconv.ParseUint(strings.TrimSpace(total), 10, 64); err == nil {
			totals[kind] = float64(microseconds) / 1e6
		}
	}
	return totals
}
