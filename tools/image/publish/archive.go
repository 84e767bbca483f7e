// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
)

// readChart returns the files below `dir` by their paths. Symbolic links are followed.
func readChart(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}

	for _, entry := range entries {
		file := filepath.Join(dir, entry.Name())
		info, err := os.Stat(file)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			if files[entry.Name()], err = os.ReadFile(file); err != nil {
				return nil, err
			}
			continue
		}

		below, err := readChart(file)
		if err != nil {
			return nil, err
		}
		for name, data := range below {
			files[path.Join(entry.Name(), name)] = data
		}
	}

	return files, nil
}

// setVersions replaces the development version and image in the files of a chart by the version and the image of the
// release.
func setVersions(files map[string][]byte, r release, image name.Digest) error {
	for _, edit := range []struct{ file, from, to string }{
		{"Chart.yaml", "version: 0.0.0-dev", "version: " + r.chart.TagStr()},
		{"Chart.yaml", "appVersion: dev", "appVersion: " + r.image.TagStr()},
		{"values.yaml", "  repository: localhost/qos-nri-plugin", "  repository: " + image.Context().Name()},
		{"values.yaml", `  digest: ""`, "  digest: " + image.DigestStr()},
	} {
		line := "\n" + edit.from + "\n"
		before, after, found := strings.Cut(string(files[edit.file]), line)
		if !found || strings.Contains(after, line) {
			return fmt.Errorf("%s of the chart must have the line %q exactly once", edit.file, edit.from)
		}
		files[edit.file] = []byte(before + "\n" + edit.to + "\n" + after)
	}

	return nil
}

// chartArchive returns the archive of a chart. The files are in a directory with the chart's name. "helm package" is
// not used, because it writes the current time into the archive.
func chartArchive(files map[string][]byte, chart string, at time.Time) ([]byte, error) {
	var buffer bytes.Buffer
	compressed := gzip.NewWriter(&buffer)
	archive := tar.NewWriter(compressed)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		header := tar.Header{Typeflag: tar.TypeReg, Name: path.Join(chart, file), Mode: 0o644, Size: int64(len(files[file])), ModTime: at}
		if err := archive.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(files[file]); err != nil {
			return nil, err
		}
	}

	err := errors.Join(archive.Close(), compressed.Close())
	return buffer.Bytes(), err
}
