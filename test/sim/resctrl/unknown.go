// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"strings"
	"syscall"
)

// readUnknown reads a file of Spec.Unknown. `name` is its path below the mount point. Unknown files exist in the root group only.
func (f *FS) readUnknown(name string) (text string, err error) {
	if text, exists := f.spec.Unknown.Files[name]; exists {
		return text, nil
	}
	if _, isDirectory := f.listUnknown(name); isDirectory {
		return "", syscall.EISDIR
	}
	for file := range f.spec.Unknown.Files {
		if strings.HasPrefix(name, file+"/") {
			return "", syscall.ENOTDIR
		}
	}
	return "", syscall.ENOENT
}

// listUnknown returns the names that Spec.Unknown adds to a directory, and whether it adds any.
func (f *FS) listUnknown(dir string) (names []string, adds bool) {
	prefix := dir + "/"
	if dir == "" {
		prefix = ""
	}
	seen := map[string]bool{}
	for file := range f.spec.Unknown.Files {
		if rest, below := strings.CutPrefix(file, prefix); below {
			name, _, _ := strings.Cut(rest, "/")
			if !seen[name] {
				names = append(names, name)
			}
			seen[name] = true
		}
	}
	return names, len(names) > 0
}
