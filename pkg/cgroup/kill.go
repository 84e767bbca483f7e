// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"path"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// WritableFS is an FS whose files can be written.
type WritableFS interface {
	FS
	WriteFile(path string, data []byte) error
}

var errNoKill = errors.New("cgroup v2 is not mounted")

// Kill ends all processes in the target's cgroup and in the cgroups below it. When Kill returns without an error, each
// of them has a SIGKILL pending, so none executes another instruction. Kill needs cgroup v2 and the file cgroup.kill,
// which exists since Linux 5.14. Unlike kill(2), cgroup.kill needs no capability, and cannot reach a process that has
// reused the ID of an ended process.
func Kill(fs WritableFS, target classes.Holder) error {
	tree, err := Detect(fs)
	if err != nil {
		return err
	}

	err = errNoKill
	for _, h := range tree.hierarchies {
		if h.version != 2 {
			continue
		}
		dir, dirErr := tree.dir(h, target)
		if dirErr != nil {
			err = dirErr
			continue
		}
		if err = fs.WriteFile(path.Join(dir, "cgroup.kill"), []byte("1")); err == nil {
			return nil
		}
	}
	return fmt.Errorf("kill the processes of a cgroup: %w", err)
}
