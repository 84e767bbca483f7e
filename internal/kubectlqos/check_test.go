// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

func TestCheckSkipsObjectsOfOtherKindsInADirectory(t *testing.T) {
	const (
		classFile = "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources: []\n"
		roles     = "apiVersion: v1\nkind: ServiceAccount\n---\napiVersion: v1\nkind: ServiceAccount\n"
		limits    = "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSLimitRange\n"
	)

	for _, test := range []struct {
		name  string
		files map[string]string
		// args are paths relative to the directory of the files.
		args     string
		wantCode int
		wantOut  string
	}{
		{"beside a class file", map[string]string{"classes.yaml": classFile, "limits.yaml": limits, "roles.yaml": roles}, "", 0,
			"skipped files of other kinds: limits.yaml, roles.yaml\n1 file, 0 resources, 0 classes: OK (not checked against this machine)\n"},
		{"but not all files", map[string]string{"limits.yaml": limits, "roles.yaml": roles}, "", program.ExitProblems,
			"skipped files of other kinds: limits.yaml, roles.yaml\nDIR has no class file; a class file has the kind QOSClassConfig\n"},
		{"but not a class file of another version", map[string]string{"classes.yaml": strings.Replace(classFile, "v1alpha1", "v9", 1)}, "",
			program.ExitProblems, `DIR/classes.yaml:1: apiVersion: is "qos.noderesource.dev/v9"; only qos.noderesource.dev/v1alpha1 is known` + "\n"},
		{"but not a file that has no kind", map[string]string{"classes.yaml": classFile, "values.yaml": "apiVersion: v1\n"}, "", program.ExitProblems,
			"DIR/values.yaml:1: apiVersion: is \"v1\"; only qos.noderesource.dev/v1alpha1 is known\n" +
				"DIR/values.yaml:1: kind: is missing; write kind: QOSClassConfig\n"},
		{"but not the file that is named", map[string]string{"limits.yaml": limits}, "limits.yaml", program.ExitProblems,
			`DIR/limits.yaml:2: kind: is "QOSLimitRange"; only QOSClassConfig is known` + "\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range test.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got := newRig(t).run(t, "check", filepath.Join(dir, test.args))
			if out := strings.ReplaceAll(got.Out, dir, "DIR"); got.Code != test.wantCode || out != test.wantOut {
				t.Errorf("exit code %d, want %d; output:\n%s\nwant:\n%s", got.Code, test.wantCode, out, test.wantOut)
			}
		})
	}
}
