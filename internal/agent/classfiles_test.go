// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

// newFiles returns the classFiles of a node, and the backend of the node, which accepts every configuration.
func newFiles(t *testing.T) (*classFiles, *nodetest.Backend) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "classes.yaml")
	f := &classFiles{path: path, read: os.ReadFile, log: slog.New(slog.DiscardHandler)}
	backend := nodetest.NewBackend()
	f.kinds = []classes.Kind{nodetest.Kind("test", []classes.Scope{classes.ContainerScope}, map[string]*nodetest.Backend{"a.example/x": backend})}
	f.node = node.New(node.Options{Kinds: f.kinds, Log: f.log})
	return f, backend
}

// must fails the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (f *classFiles) write(t *testing.T, resources string) {
	t.Helper()
	text := "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources: " + resources + "\n"
	must(t, os.WriteFile(f.path, []byte(text), 0o600))
}

const oneClass = "[{name: a.example/x, test: {names: [gold]}}]"

func TestChangedFilesAreAppliedOnceTheyAreTheSameTwice(t *testing.T) {
	f, _ := newFiles(t)
	f.write(t, "[]")
	f.load(t.Context())
	for i, text := range []string{"[] # half", oneClass} {
		f.write(t, text)
		if again := f.poll(t.Context()); again == nil {
			t.Errorf("poll %d does not schedule another poll of the changed file", i)
		}
		if generation := f.node.Status().Config.Generation; generation != 1 {
			t.Errorf("after poll %d, the generation is %d, want 1", i, generation)
		}
	}

	if again := f.poll(t.Context()); again != nil || f.node.Status().Config.Generation != 2 {
		t.Error("two polls found the same file, but it was not applied")
	}
}

func TestFilesThatTheMachineRefusedAreRetried(t *testing.T) {
	f, backend := newFiles(t)
	f.write(t, oneClass)
	backend.Fail("apply", errors.New("a group was removed"))
	f.load(t.Context())
	backend.Fail("apply", nil)
	if f.poll(t.Context()); f.node.Status().Config.Err == nil {
		t.Error("the refused files were applied again at once, before retryTime")
	}

	f.refusedAt = time.Now().Add(-retryTime - time.Second)
	if f.poll(t.Context()); f.node.Status().Config.Err != nil {
		t.Errorf("after retryTime, the files are still not applied: %v", f.node.Status().Config.Err)
	}
}

func TestFilesWithErrorsAreNotRetried(t *testing.T) {
	f, backend := newFiles(t)
	f.write(t, oneClass)
	backend.Fail("apply", errors.New("a group was removed"))
	f.load(t.Context()) // schedules a retry
	f.write(t, "{}")
	f.load(t.Context())
	if !f.refusedAt.IsZero() {
		t.Error("a retry is scheduled for a file with errors")
	}
}
