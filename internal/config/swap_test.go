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

// configMap is a directory as the kubelet mounts a ConfigMap: each version in a directory of its own, "..data" a link to the live
// one, and a link for each file through that.
type configMap string

// publish makes a version, and makes it the live one as the kubelet does, but for the links of its files.
func (m configMap) publish(t *testing.T, version string, files ...string) {
	t.Helper()
	for _, file := range files {
		path := filepath.Join(string(m), "..version_"+version, file+".yaml")
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(classFile(file, "{names: ["+version+"]}")), 0o600))
	}
	must(t, m.swap(version))
}

// swap makes a version that there is the live one.
func (m configMap) swap(version string) error {
	next := filepath.Join(string(m), "..data_tmp")
	err := os.Symlink("..version_"+version, next)
	return errors.Join(err, os.Rename(next, filepath.Join(string(m), "..data")))
}

// link shows files of the live version.
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

// versions are the files that were read, each with the version that it is of.
func versions(source classes.FileSet) (read []string) {
	for _, resource := range source.Config.Resources {
		class, _ := resource.Backend.(nodetest.Config)
		read = append(read, filepath.Base(resource.Name)+" of "+class.Names[0])
	}
	return read
}

// A look that comes while the kubelet swaps may fail, and the next one finds the new version. But what it takes must be one version.
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
			t.Errorf("read %q", got)
			break
		}
		seen[got[0]] = true
	}
	close(done)
	must(t, <-ended)
	if !t.Failed() && len(seen) < 2 {
		t.Errorf("only %v were read", seen)
	}
}

// swapUntil goes back and forth between two versions.
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

// The kubelet swaps the version first, then adds links of new files, and last takes away those of files that are gone.
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

// An old version is removed right after the swap: a look may have begun in it.
func TestAVersionThatIsRemovedDuringTheReadIsAnErrorOrReadAgain(t *testing.T) {
	m := configMap(t.TempDir())
	m.publish(t, "1", "a", "b")
	m.link(t, "a", "b")
	must(t, os.RemoveAll(filepath.Join(string(m), "..version_1")))
	if source := config.Read(string(m), kinds(), os.ReadFile); !errors.Is(source.Err, fs.ErrNotExist) {
		t.Errorf("error is %v with %+v", source.Err, source.Config)
	}
	m.publish(t, "2", "a", "b")
	source := config.Read(string(m), kinds(), os.ReadFile)
	if source.Err != nil {
		t.Fatal(source.Err)
	}
	if diff := cmp.Diff([]string{"a of 2", "b of 2"}, versions(source)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
