// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

func kinds() []classes.Kind {
	return []classes.Kind{nodetest.Kind("test", []classes.Scope{classes.ContainerScope}, nil)}
}

func classFile(resource, section string) string {
	return "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n- name: test.example/" + resource + "\n  test: " + section + "\n"
}

// directory writes files and returns the directory that they are in.
func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return dir
}

func TestFilesOfAMountedConfigMapAreReadInTheOrderOfTheirNames(t *testing.T) {
	dir := directory(t, map[string]string{
		"..2026_01_01/20-b.yaml": classFile("b", "{names: [x]}"),
		"..2026_01_01/10-a.yml":  classFile("a", "{names: [x]}"),
		"README.md":              "no class file",
	})

	for link, target := range map[string]string{"..data": "..2026_01_01", "20-b.yaml": "..data/20-b.yaml", "10-a.yml": "..data/10-a.yml"} {
		must(t, os.Symlink(target, filepath.Join(dir, link)))
	}

	source := config.Read(dir, kinds(), os.ReadFile)
	must(t, source.Err)

	want := []string{filepath.Join(dir, "10-a.yml"), filepath.Join(dir, "20-b.yaml")}
	if diff := cmp.Diff(want, source.Files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}

	if len(source.Config.Resources) != 2 || source.Config.Resources[0].Name != "test.example/a" {
		t.Errorf("resources are %+v", source.Config.Resources)
	}
}

func TestTheHashChangesWithAFileThatAClassFileNames(t *testing.T) {
	dir := directory(t, map[string]string{"a.yaml": classFile("a", "{configFile: /etc/test.yaml}")})
	content := "names: [x]"
	read := func(string) ([]byte, error) { return []byte(content), nil }
	before := config.Read(dir, kinds(), read)
	same := config.Read(dir, kinds(), read)
	content = "names: [x, y]"
	after := config.Read(dir, kinds(), read)
	if before.Err != nil || before.Hash != same.Hash {
		t.Errorf("the same files have the hashes %s and %s, want one hash (error: %v)", before.Hash, same.Hash, before.Err)
	}
	if before.Hash == after.Hash {
		t.Error("a change of the named file does not change the hash")
	}
}

func TestADirectoryThatIsMadeLaterHasAnotherHash(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "classes")
	missing := config.Read(dir, kinds(), os.ReadFile)
	must(t, os.Mkdir(dir, 0o750))
	empty := config.Read(dir, kinds(), os.ReadFile)
	if missing.Err == nil || empty.Err != nil || missing.Hash == empty.Hash {
		t.Errorf("a missing directory: hash %s, error %v; an empty directory: hash %s, error %v", missing.Hash, missing.Err, empty.Hash, empty.Err)
	}
}

func TestUnreadableFilesAreReported(t *testing.T) {
	large := string(bytes.Repeat([]byte("# much\n"), 200_000))
	cases := map[string]struct {
		path string
		want string
	}{
		"a directory that is not there": {filepath.Join(t.TempDir(), "none"), "create the file or directory, or pass another path"},
		"a file of more than 256 KiB":   {directory(t, map[string]string{"a.yaml": large}), "a.yaml"},
		"a link that leads nowhere":     {dangling(t), "a.yaml"},
		"a directory among the files":   {directory(t, map[string]string{"a.yaml/b": ""}), "a.yaml"},
	}

	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			source := config.Read(c.path, kinds(), os.ReadFile)
			if source.Err == nil || !strings.Contains(source.Err.Error(), c.want) {
				t.Errorf("error is %v, want one with %q", source.Err, c.want)
			}
		})
	}
}

func dangling(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Symlink("nowhere", filepath.Join(dir, "a.yaml")))
	return dir
}

func TestTheExampleClassFilesAreValidOffline(t *testing.T) {
	files, err := filepath.Glob("../../config/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no class files: %v", err)
	}
	for _, file := range files {
		if source := config.Read(file, config.OfflineKinds(), config.HostFiles("/")); source.Err != nil {
			t.Errorf("%v", source.Err)
		}
	}
}
