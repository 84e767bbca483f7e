// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/checkpoint"
)

func remember(t *testing.T, c *checkpoint.Changes, key, data string) {
	t.Helper()
	must(t, c.SetMemory(map[string][]byte{key: []byte(data)}))
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return data
}

// TestAProcessThatIsKilledInAWriteLosesOnlyThisChange cuts the file at each byte of its last line.
func TestAProcessThatIsKilledInAWriteLosesOnlyThisChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "changes.json")
	c := open(path, "boot")
	remember(t, c, "a", "1")
	remember(t, c, "a", "2")
	before := len(content(t, path))
	remember(t, c, "a", "3")
	all := content(t, path)

	for length := before; length <= len(all); length++ {
		must(t, os.WriteFile(path, all[:length], 0o600))
		want := "2"
		if length == len(all) {
			want = "3"
		}
		after := open(path, "boot")
		if got := string(after.Memory()["a"]); got != want {
			t.Fatalf("with %d of %d bytes, a is %q, want %s", length, len(all), got, want)
		}
		remember(t, after, "b", "1")
		if diff := cmp.Diff(map[string][]byte{"a": []byte(want), "b": []byte("1")}, open(path, "boot").Memory()); diff != "" {
			t.Fatalf("with %d of %d bytes and a later change (-want +got):\n%s", length, len(all), diff)
		}
	}
}

func TestAChangeThatCannotBeAppendedReplacesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "changes.json")
	c := open(path, "boot")
	remember(t, c, "a", "1")
	must(t, os.Remove(path))
	must(t, os.Symlink("/dev/full", path))

	remember(t, c, "b", "2")
	if diff := cmp.Diff(map[string][]byte{"a": []byte("1"), "b": []byte("2")}, open(path, "boot").Memory()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTheFileIsAtMostTwiceAsLongAsItsContent changes one record of many again and again.
func TestTheFileIsAtMostTwiceAsLongAsItsContent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "changes.json")
	c := open(path, "boot")
	for i := range 2000 {
		remember(t, c, fmt.Sprint(i), `"`+string(bytes.Repeat([]byte("x"), 100))+`"`)
	}
	whole := int64(len(content(t, path)))
	for i := range 10_000 {
		remember(t, c, "1", fmt.Sprint(i))
		if info, err := os.Stat(path); err != nil || info.Size() > 2*whole {
			t.Fatalf("after %d changes, the file has %d bytes; at first it had %d; %v", i, info.Size(), whole, err)
		}
	}
}

// TestALargeFileStaysReadable replaces a record of 9 MiB. Files above 16 MiB are not read, so the file must not have the former record and
// the new one.
func TestALargeFileStaysReadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "changes.json")
	c := open(path, "boot")
	for range 2 {
		remember(t, c, "a", `"`+string(bytes.Repeat([]byte("x"), 9<<20))+`"`)
	}
	if want, got := c.Memory()["a"], open(path, "boot").Memory()["a"]; !bytes.Equal(want, got) {
		t.Errorf("the record has %d bytes, want %d", len(got), len(want))
	}
}
