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

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// maxFileSize bounds a class file; what is longer is refused by the parser, which sees one byte more than allowed.
const maxFileSize = 256 << 10

// Read reads a class file, or all *.yaml and *.yml files of a directory in name order. readHostFile reads the files that
// configFile fields name. What is wrong is in Source.Err, every problem at once.
func Read(path string, kinds []classes.Kind, readHostFile func(path string) ([]byte, error)) classes.FileSet {
	files, err := readFiles(path)
	source := classes.FileSet{Err: err}
	for _, file := range files {
		source.Files = append(source.Files, file.Name)
	}
	if err == nil {
		source.Config, source.Err = classes.Parse(files, kinds, func(path string) ([]byte, error) {
			data, err := readHostFile(path)
			files = append(files, classes.File{Name: path, Data: data})
			return data, err
		})
	}
	source.Hash = hash(files, err)
	return source
}

// versionLink is where the kubelet has the version of a mounted ConfigMap that is the live one (pkg/volume/util, AtomicWriter).
const versionLink = "..data"

// attempts to read a version of a ConfigMap that is taken away while it is read.
const attempts = 3

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
	places, err := list(path)
	if err != nil {
		return nil, err
	}
	var files []classes.File
	var errs []error
	for _, place := range places {
		data, err := readBounded(place.real)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		files = append(files, classes.File{Name: place.name, Data: data})
	}
	return files, errors.Join(errs...)
}

// place is a class file as users know it, and where it is read.
type place struct{ name, real string }

// list returns the class files of a directory. Names that begin with a dot are skipped. A mounted ConfigMap is listed in
// its live version rather than by the links of its files, which lead through it: all files are of one version then.
func list(path string) ([]place, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read class files: %w; make it, or name another file or directory", err)
	}
	if !info.IsDir() {
		return []place{{path, path}}, nil
	}
	dir := path
	if _, err := os.Lstat(filepath.Join(path, versionLink)); err == nil {
		if dir, err = filepath.EvalSymlinks(filepath.Join(path, versionLink)); err != nil {
			return nil, fmt.Errorf("read class files: %w", err)
		}
	}
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, fmt.Errorf("read class files: %w", err)
	}
	var places []place
	for _, entry := range entries {
		name := entry.Name()
		if ext := filepath.Ext(name); !strings.HasPrefix(name, ".") && (ext == ".yaml" || ext == ".yml") {
			places = append(places, place{filepath.Join(path, name), filepath.Join(dir, name)})
		}
	}
	return places, nil
}

// HostFiles reads the files that configFile fields name, below the directory where the host's files are.
func HostFiles(root string) func(path string) ([]byte, error) {
	return func(path string) ([]byte, error) { return readBounded(filepath.Join(root, path)) }
}

// readBounded reads a file, and of one that is too long one byte more than allowed. It waits for nobody, as a pipe would.
func readBounded(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file; class files are", name)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFileSize+1))
	return data, errors.Join(err, file.Close())
}

// hash identifies what was read, the files that configFile fields name included, and why something could not be.
func hash(files []classes.File, unread error) string {
	sum := sha256.New()
	if unread != nil {
		_, _ = fmt.Fprintf(sum, "%v\x00", unread)
	}
	for _, file := range files {
		_, _ = fmt.Fprintf(sum, "%s\x00%d\x00", file.Name, len(file.Data))
		_, _ = sum.Write(file.Data)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
