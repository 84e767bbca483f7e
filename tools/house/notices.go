// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// writeNotices writes what must be distributed with the programs: the licences of all linked modules and of Go, and the notices
// that section 4d of Apache-2.0 requires. `goroot` has Go's licence.
func writeNotices(w io.Writer, modules []module, goroot string) error {
	modules = append([]module{{path: "the Go standard library", version: runtime.Version(), dir: goroot}}, modules...)
	for _, m := range modules {
		if err := writeNotice(w, m); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
	}
	return nil
}

func writeNotice(w io.Writer, m module) error {
	licences, err := licenceFiles(m.dir)
	if err != nil {
		return err
	}

	notices, err := filepath.Glob(filepath.Join(m.dir, "NOTICE*"))
	if err != nil {
		return err
	}

	for _, file := range append(licences, notices...) {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "==== %s %s: %s\n\n%s\n\n", m.path, m.version, filepath.Base(file), strings.TrimSpace(string(text)))
		if err != nil {
			return err
		}
	}

	return nil
}
