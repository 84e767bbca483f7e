// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

// configMap is a directory with the layout of a ConfigMap that the kubelet has mounted. Each version has its own
// directory. The link "..data" points to the directory of the live version. Each file is a link to a file below
// "..data".
type configMap string

// publish writes a version and makes it the live version, as the kubelet does. It does not update the links of the
// files.
func (m configMap) publish(t *testing.T, version string, files ...string) {
	t.Helper()
	for _, file := range files {
		path := filepath.Join(string(m), "..version_"+version, file+".yaml")
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(classFile(file, "{names: ["+version+"]}")), 0o600))
	}
	must(t, m.swap(version))
}

// swap makes an existing version the live version.
func (m configMap) swap(version string) error {
	next := filepath.Join(string(m), "..data_tmp")
	err := os.Symlink("..version_"+version, next)
	return errors.Join(err, os.Rename(next, filepath.Join(string(m), "..data")))
}

// link creates a symbolic link for each file. The link points into ..data, the link to the live version.
func (m configMap) link(t *testing.T, files ...string) {
	t.Helper()
	for _, file := range files {
		must(t, os.Symlink("..data/"+file+".yaml", filepath.Join(string(m), file+".yaml")))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// versions returns the files that were read, each with the version from which it comes.
func versions(source classes.FileSet) (read []string) {
	for _, resource := range source.Config.Resources {
		class, _ := resource.Backend.(nodetest.Config)
		read = append(read, filepath.Base(resource.Name)+" of "+class.Names[0])
	}
	return read
}

// TestAConfigMapIsReadInOneVersion reads a ConfigMap while its versions are swapped. A read may fail, because the plugin reads
// again later. A read that succeeds must return the files of a single version.
func TestAConfigMapIsReadInOneVersion(t *testing.T) {
	m := configMap(t.TempDir())
	m.publish(t, "1", "a", "b", "c", "d")
	m.publish(t, "2", "a", "b", "c", "d")
	m.link(t, "a", "b", "c", "d")
	done, ended := make(chan struct{}), make(chan error)
	go func() { ended <- m.swapUntil(done) }()
	whole := [][]string{{"a of 1", "b of 1", "c of 1", "d of 1"}, {"a of 2", "b of 2", "c of 2", "d of 2"}}
	seen := map[string]bool{}
	for range 200 {
		source := config.Read(string(m), kinds(), os.ReadFile)
		if source.Err != nil {
			continue
		}
		got := versions(source)
		if !slices.ContainsFunc(whole, func(want []string) bool { return slices.Equal(want, got) }) {
			t.Errorf("the read returned files of several versions, or not all files: %q", got)
			break
		}
		seen[got[0]] = true
	}

	close(done)
	must(t, <-ended)
	if !t.Failed() && len(seen) < 2 {
		t.Errorf("only the versions %v were read, want both", seen)
	}
}

// swapUntil swaps between two versions until the channel `done` is closed.
func (m configMap) swapUntil(done <-chan struct{}) error {
	for i := 0; ; i++ {
		select {
		case <-done:
			return nil
		default:
		}
		if err := m.swap([]string{"1", "2"}[i%2]); err != nil {
			return err
		}
	}
}

// TestAConfigMapWithOutdatedLinksIsReadInOneVersionOrNotAtAll reads a ConfigMap right after a swap, when its links still name
// the files of the old version. The kubelet updates the links only after the swap.
func TestAConfigMapWithOutdatedLinksIsReadInOneVersionOrNotAtAll(t *testing.T) {
	for _, test := range []struct {
		name          string
		before, after []string
		want          []string
	}{
		{"a file is new", []string{"a"}, []string{"a", "b"}, []string{"a of 2", "b of 2"}},
		{"a file is gone", []string{"a", "b"}, []string{"a"}, []string{"a of 2"}},
		{"a file has another name", []string{"a", "b"}, []string{"a", "c"}, []string{"a of 2", "c of 2"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := configMap(t.TempDir())
			m.publish(t, "1", test.before...)
			m.link(t, test.before...)
			m.publish(t, "2", test.after...)
			source := config.Read(string(m), kinds(), os.ReadFile)
			if source.Err != nil {
				if !errors.Is(source.Err, fs.ErrNotExist) {
					t.Error(source.Err)
				}
				return
			}

			if diff := cmp.Diff(test.want, versions(source)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestAConfigMapWithoutItsLiveVersionIsAnErrorUntilTheNextVersion removes the version that a ConfigMap links to. A read that
// began before a swap finds the same state, because the kubelet removes the old version right after the swap.
func TestAConfigMapWithoutItsLiveVersionIsAnErrorUntilTheNextVersion(t *testing.T) {
	m := configMap(t.TempDir())
	m.publish(t, "1", "a", "b")
	m.link(t, "a", "b")
	must(t, os.RemoveAll(filepath.Join(string(m), "..version_1")))
	if source := config.Read(string(m), kinds(), os.ReadFile); !errors.Is(source.Err, fs.ErrNotExist) {
		t.Errorf("the error is %v and the configuration %+v, want ErrNotExist", source.Err, source.Config)
	}

	m.publish(t, "2", "a", "b")
	source := config.Read(string(m), kinds(), os.ReadFile)
	must(t, source.Err)

	if diff := cmp.Diff([]string{"a of 2", "b of 2"}, versions(source)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
