// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config reads the class files of a node.
package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Read reads a class file. If `path` is a directory, Read reads all *.yaml and *.yml files of the directory in the order of
// their names. It calls the function readHostFile for the files named in configFile fields. FileSet.Err joins all problems.
func Read(path string, kinds []classes.Kind, readHostFile func(path string) ([]byte, error)) classes.FileSet {
	files, err := readFiles(path)
	return parse(files, err, kinds, readHostFile)
}

// ReadManifests is like Read, but in a directory it skips files whose first document is a Kubernetes object of another
// kind, and returns their names. If it skips every file, FileSet.Err is not nil. The plugin calls Read instead, because
// skipping a class file with a misspelled kind would remove the classes of that file.
func ReadManifests(path string, kinds []classes.Kind, readHostFile func(path string) ([]byte, error)) (set classes.FileSet, skipped []string) {
	files, err := readFiles(path)
	var own []classes.File
	for _, file := range files {
		if file.Name != path && isOtherKind(file.Data) {
			skipped = append(skipped, filepath.Base(file.Name))
			continue
		}
		own = append(own, file)
	}

	if len(own) == 0 && len(skipped) > 0 {
		err = errors.Join(err, fmt.Errorf("%s has no class file; a class file has the kind %s", path, classes.FileKind))
	}
	return parse(own, err, kinds, readHostFile), skipped
}

// isOtherKind reports whether the first document of a file is a Kubernetes object, and not a class file.
func isOtherKind(data []byte) bool {
	var object struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string `yaml:"kind"`
	}
	err := yaml.Unmarshal(data, &object)
	return err == nil && object.APIVersion != "" && object.Kind != "" && object.Kind != classes.FileKind
}

// parse parses class files. If reading the files failed, `err` is the read error. In this case parse parses nothing,
// and returns `err` with the names and the hash of the files.
func parse(files []classes.File, err error, kinds []classes.Kind, readHostFile func(path string) ([]byte, error)) classes.FileSet {
	set := classes.FileSet{Err: err}
	for _, file := range files {
		set.Files = append(set.Files, file.Name)
	}

	if err == nil {
		set.Config, set.Err = classes.Parse(files, kinds, func(path string) ([]byte, error) {
			data, err := readHostFile(path)
			files = append(files, classes.File{Name: path, Data: data})
			return data, err
		})
	}
	set.Hash = hash(files, err)
	return set
}

const (
	// versionLink is the symbolic link to the live version of a mounted ConfigMap. The kubelet makes this link
	// (pkg/volume/util, AtomicWriter).
	versionLink = "..data"
	// attempts is the maximum number of reads of a ConfigMap. A read is repeated if the ConfigMap was replaced during the read.
	attempts = 3
)

func readFiles(path string) (files []classes.File, err error) {
	for range attempts {
		files, err = readOnce(path)
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return files, err
}

func readOnce(path string) ([]classes.File, error) {
	dir, names, err := list(path)
	if err != nil {
		return nil, fmt.Errorf("read class files: %w", err)
	}

	var files []classes.File
	var errs []error
	for _, name := range names {
		data, err := readBounded(filepath.Join(dir, name))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		files = append(files, classes.File{Name: filepath.Join(path, name), Data: data})
	}
	return files, errors.Join(errs...)
}

// list returns the names of the class files in a directory, and the directory from which they must be read. Names that
// begin with a dot are left out. If `path` is a file, it returns `path` and one empty name. If `path` is a mounted
// ConfigMap, it returns the directory to which versionLink points, so that all files come from one version.
func list(path string) (dir string, names []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", nil, fmt.Errorf("%w; create the file or directory, or pass another path", err)
	}
	if !info.IsDir() {
		return path, []string{""}, nil
	}

	dir = path
	if _, err := os.Lstat(filepath.Join(path, versionLink)); err == nil {
		if dir, err = filepath.EvalSymlinks(filepath.Join(path, versionLink)); err != nil {
			return "", nil, err
		}
	}
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return "", nil, err
	}

	for _, entry := range entries {
		name := entry.Name()
		if ext := filepath.Ext(name); !strings.HasPrefix(name, ".") && (ext == ".yaml" || ext == ".yml") {
			names = append(names, name)
		}
	}
	return dir, names, nil
}

// HostFiles returns a function that reads the files named in configFile fields. The function resolves every path below the
// parameter `root`, the directory that contains the host's files. A path with ".." cannot leave this directory.
func HostFiles(root string) func(path string) ([]byte, error) {
	return func(path string) ([]byte, error) { return readBounded(filepath.Join(root, filepath.Join("/", path))) }
}

// readBounded reads a file. If the file is too large, readBounded reads one byte more than allowed, and the parser
// refuses the file. readBounded opens only regular files, because opening a pipe would block.
func readBounded(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}

	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, classes.MaxFileSize+1))
	return data, errors.Join(err, file.Close())
}

// hash returns an identifier of the read error and of the files' content, including the files named in configFile fields.
func hash(files []classes.File, readErr error) string {
	sum := sha256.New()
	if readErr != nil {
		_, _ = fmt.Fprintf(sum, "%v\x00", readErr)
	}
	for _, file := range files {
		_, _ = fmt.Fprintf(sum, "%s\x00%d\x00", file.Name, len(file.Data))
		_, _ = sum.Write(file.Data)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
