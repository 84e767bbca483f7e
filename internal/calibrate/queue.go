// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// bypass sets the I/O scheduler of a disk to "none", and disables the merging of requests, as the kernel's script does.
// `restore` restores both.
func bypass(host iocgroup.FS, disk Disk) (restore func() error, err error) {
	var undo [][2]string
	restore = func() error {
		var errs []error
		for _, one := range slices.Backward(undo) {
			if err := host.WriteFile(one[0], []byte(one[1])); err != nil {
				errs = append(errs, fmt.Errorf("restore %q in %s: %w", one[1], one[0], err))
			}
		}
		return errors.Join(errs...)
	}

	const noMerges = "2" // 1 still merges a request with the one before it (Documentation/ABI/stable/sysfs-block)
	for _, setting := range [][2]string{{"scheduler", "none"}, {"nomerges", noMerges}} {
		file := path.Join("/sys/block", disk.Name, "queue", setting[0])
		now, err := active(host, file)
		if err == nil && now != setting[1] {
			undo = append(undo, [2]string{file, now})
			err = host.WriteFile(file, []byte(setting[1]))
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("set %s of %s to %s: %w", setting[0], disk.Name, setting[1], err), restore())
		}
	}
	return restore, nil
}

// active returns the value of a file in the directory "queue". In the file "scheduler", the active value is in
// brackets.
func active(host iocgroup.FS, file string) (string, error) {
	data, err := host.ReadFile(file)
	if err != nil {
		return "", err
	}
	words := strings.Fields(string(data))
	for _, word := range words {
		if inner, found := strings.CutPrefix(word, "["); found {
			return strings.TrimSuffix(inner, "]"), nil
		}
	}
	return strings.Join(words, " "), nil
}
