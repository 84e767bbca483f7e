// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/checkpoint"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

var gold = []classes.Assignment{{Resource: "k8s.io/rdt", Class: "gold", Source: classes.SourceUpdate}}

func open(path, boot string) *checkpoint.Changes {
	return checkpoint.Open(path, boot, slog.New(slog.DiscardHandler))
}

// must fails the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func set(t *testing.T, c *checkpoint.Changes, id string, changed []classes.Assignment) {
	t.Helper()
	must(t, c.Set(id, changed))
}

func TestChangesSurviveTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "changes.json")
	c := open(path, "boot")
	set(t, c, "c1", gold)
	set(t, c, "c2", gold)
	set(t, c, "c2", nil)
	after := open(path, "boot")
	got, ok := after.Get("c1")
	if diff := cmp.Diff(gold, got); !ok || diff != "" {
		t.Errorf("c1 (-want +got):\n%s", diff)
	}
	if _, ok := after.Get("c2"); ok {
		t.Error("the checkpoint has c2, although it was removed")
	}
}

func TestChangesOfEndedContainersAreForgotten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "changes.json")
	c := open(path, "boot")
	for _, id := range []string{"c1", "c2", "c3"} {
		set(t, c, id, gold)
	}

	c = open(path, "boot")
	c.Forget("c1")
	c.Keep(func(id string) bool { return id == "c3" })
	set(t, c, "c4", gold) // the first change of a process writes the whole file, so it removes c1 and c2
	after := open(path, "boot")
	for id, want := range map[string]bool{"c1": false, "c2": false, "c3": true, "c4": true} {
		if _, got := after.Get(id); got != want {
			t.Errorf("%s is remembered: %t, want %t", id, got, want)
		}
	}
}

func TestTheDataOfBackendsSurvivesTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "changes.json")
	c := open(path, "boot")
	must(t, c.SetMemory(map[string][]byte{"a": []byte("[1]"), "b": []byte("{}")}))
	must(t, c.SetMemory(map[string][]byte{"a": []byte("[1,2]"), "b": nil}))

	set(t, open(path, "boot"), "c1", gold) // the first change of a process writes the whole file
	for boot, want := range map[string]map[string][]byte{"boot": {"a": []byte("[1,2]")}, "another boot": {}} {
		if diff := cmp.Diff(want, open(path, boot).Memory()); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", boot, diff)
		}
	}
}

func TestTheOriginalValuesOfAContainerAreKeptUntilItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "changes.json")
	want := classes.UnifiedFiles(map[string]string{"memory.high": "966365184", "io.max": "254:0 rbps=1"})
	c := open(path, "boot")
	for _, id := range []string{"stays", "ends", "is not listed"} {
		must(t, c.SetOriginals(id, want))
	}
	c.Forget("ends")
	set(t, c, "stays", gold)

	after := open(path, "boot")
	after.Keep(func(id string) bool { return id == "stays" })
	for _, id := range []string{"stays", "ends", "is not listed"} {
		originals, saved := after.Originals(id)
		if saved != (id == "stays") || saved && !cmp.Equal(originals, want) {
			t.Errorf("the originals of the container that %s are %v, saved: %t", id, originals, saved)
		}
	}
}

func TestAFileThatCannotBeTrustedIsIgnored(t *testing.T) {
	whole := `{"bootID":"boot","changes":{"c1":[{"Resource":"k8s.io/rdt","Class":"gold"}]}}`
	cases := map[string]string{
		"written before the last boot": `{"bootID":"other","changes":{"c1":[{"Resource":"k8s.io/rdt","Class":"gold"}]}}`,
		"truncated":                    whole[:len(whole)-3],
		"empty":                        "",
		"binary":                       "\x00\xff\x7fELF",
		"a JSON list":                  `[1, 2]`,
	}

	for name, content := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "changes.json")
			must(t, os.WriteFile(path, []byte(content), 0o600))
			c := open(path, "boot")
			if _, ok := c.Get("c1"); ok {
				t.Error("the checkpoint was used")
			}
			set(t, c, "c2", gold) // a new change replaces the file
		})
	}

	t.Run("the undamaged checkpoint is used", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "changes.json")
		must(t, os.WriteFile(path, []byte(whole), 0o600))
		if _, ok := open(path, "boot").Get("c1"); !ok {
			t.Error("the checkpoint was not used")
		}
	})
}

func TestAWriteThatFailsChangesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	must(t, os.Mkdir(dir, 0o700))

	c := open(filepath.Join(dir, "changes.json"), "boot")
	set(t, c, "c1", gold)
	must(t, os.RemoveAll(dir))

	if err := c.Set("c1", nil); err == nil {
		t.Error("Set returned no error, although the directory is missing")
	}

	if _, ok := c.Get("c1"); !ok {
		t.Error("c1 is not in memory after its removal could not be written")
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"bootID":"boot","changes":{"c1":[{"Resource":"k8s.io/rdt","Class":"gold"}]}}`))
	f.Add([]byte(`{"bootID":"boot","changes":null}`))
	f.Add([]byte("{\"bootID\":\"boot\"}\n{\"changes\":{\"c2\":null},\"memory\":{\"a\":null}}\n{\"chan"))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "changes.json")
		must(t, os.WriteFile(path, content, 0o600))
		c := open(path, "boot")
		set(t, c, "c1", gold)
		if got, ok := open(path, "boot").Get("c1"); !ok || !cmp.Equal(got, gold) {
			t.Errorf("c1 is %v after it was set and read again", got)
		}
	})
}
