// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// cdiFile is the name of the file that describes the CDI devices of all classes.
const cdiFile = "qos.noderesource.dev-class.json"

// cdiSpec is a CDI specification, as in the CDI's SPEC.md. Version 0.5.0 is the first that allows names that begin with a digit.
type cdiSpec struct {
	Version string      `json:"cdiVersion"`
	Kind    string      `json:"kind"`
	Devices []cdiDevice `json:"devices"`
}

type cdiDevice struct {
	Name  string `json:"name"`
	Edits struct {
		Env []string `json:"env"`
	} `json:"containerEdits"`
}

// writeCDI writes the CDI devices of classes for the runtime, unless the file is up to date. It removes the file if
// there are no classes.
func writeCDI(dir string, pairs []classes.Pair) error {
	path := filepath.Join(dir, cdiFile)
	if len(pairs) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the CDI devices: %w", err)
		}
		return nil
	}

	spec := cdiSpec{Version: "0.5.0", Kind: classes.CDIKind}
	slices.SortFunc(pairs, func(a, b classes.Pair) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Class, b.Class))
	})
	for _, p := range slices.Compact(pairs) {
		d := cdiDevice{Name: classes.CDIName(p)}
		d.Edits.Env = []string{classes.CDIEnvironment(p)}
		spec.Devices = append(spec.Devices, d)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encode the CDI devices: %w", err)
	}

	if written, err := os.ReadFile(path); err == nil && bytes.Equal(written, data) {
		return nil
	}
	if err := writeFile(path, data, 0o644); err != nil {
		return fmt.Errorf("write the CDI devices: %w", err)
	}
	return nil
}
