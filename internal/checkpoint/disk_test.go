// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// fill makes the next write of a checkpoint fail with ENOSPC: it replaces the checkpoint's temporary file by a link to /dev/full.
func fill(t *testing.T, path string) {
	t.Helper()
	must(t, os.Symlink("/dev/full", path+".new"))
}

func TestAFullDiskChangesNothingAndIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "changes.json")
	set(t, open(path, "boot"), "c1", gold)
	c := open(path, "boot")
	before, err := os.ReadFile(path)
	must(t, err)

	bronze := []classes.Assignment{{Resource: "k8s.io/rdt", Class: "bronze", Source: classes.SourceUpdate}}
	for id, changed := range map[string][]classes.Assignment{"c1": bronze, "c2": gold, "c3": nil} {
		fill(t, path) // only for the next write
		err := c.Set(id, changed)
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error is %v, want ENOSPC with the path", id, err)
		}
	}

	after, err := os.ReadFile(path)
	must(t, err)

	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("the checkpoint (-before +after):\n%s", diff)
	}

	if got, _ := c.Get("c1"); !cmp.Equal(got, gold) {
		t.Errorf("c1 has %v in memory", got)
	}

	if left, err := filepath.Glob(path + ".*"); err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}

	set(t, c, "c2", gold)
	for id, want := range map[string]bool{"c1": true, "c2": true, "c3": false} {
		if _, got := open(path, "boot").Get(id); got != want {
			t.Errorf("with free space again, the checkpoint has %s: %t, want %t", id, got, want)
		}
	}
}

func TestAnUnfinishedFileIsNotReadAndDoesNotPreventWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "changes.json")
	set(t, open(path, "boot"), "c1", gold)
	must(t, os.WriteFile(path+".new", []byte(`{"bootID":"boot","changes":{"c9":[{"Resource":"k8s.io/rdt","Cla`), 0o600))

	c := open(path, "boot")
	for id, want := range map[string]bool{"c1": true, "c9": false} {
		if _, got := c.Get(id); got != want {
			t.Errorf("the checkpoint has %s: %t, want %t", id, got, want)
		}
	}

	set(t, c, "c2", gold)
	if _, ok := open(path, "boot").Get("c2"); !ok {
		t.Error("a later change was not written")
	}
}

func TestTheAgeOfACheckpointDoesNotMatter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "changes.json")
	set(t, open(path, "boot"), "c1", gold)
	for _, when := range []time.Time{time.Unix(0, 0), time.Now().AddDate(100, 0, 0)} {
		must(t, os.Chtimes(path, when, when))
		if _, ok := open(path, "boot").Get("c1"); !ok {
			t.Errorf("a checkpoint of %s is not used", when)
		}
	}
}
