// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package oci builds OCI images of static programs, and image indexes with their SBOMs and provenance. The content depends only on
// the files and the Spec: the same input results in the same digest.
package oci

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// DocumentsDir is the directory of the licences in the image.
const DocumentsDir = "/usr/share/doc/qos-nri-plugin"

// Build returns the image. The documents are one layer and each program is another, so that nodes fetch only what changed.
func Build(s Spec) (v1.Image, error) {
	if err := checkPrograms(s); err != nil {
		return nil, err
	}

	image, err := mutate.ConfigFile(mutate.MediaType(empty.Image, types.OCIManifestSchema1), &v1.ConfigFile{
		Architecture: s.Platform.Architecture,
		OS:           s.Platform.OS,
		Variant:      s.Platform.Variant,
		Created:      v1.Time{Time: s.Created},
		RootFS:       v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/" + s.Entrypoint},
			Env:        []string{"PATH=/"},
			Labels:     s.labels(),
			User:       "0:0",
			WorkingDir: "/",
		},
	})
	if err != nil {
		return nil, err
	}

	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	if image, err = appendLayer(image, s, DocumentsDir, 0o644, s.Documents); err != nil {
		return nil, err
	}

	for _, program := range s.Programs {
		if image, err = appendLayer(image, s, "/", 0o755, []string{program}); err != nil {
			return nil, err
		}
	}

	return image, nil
}

// appendLayer adds a layer with files of the same mode in one directory of the image.
func appendLayer(image v1.Image, s Spec, dir string, mode int64, files []string) (v1.Image, error) {
	if len(files) == 0 {
		return image, nil
	}

	archive, err := layerArchive(dir, mode, s.Created, files)
	if err != nil {
		return nil, err
	}

	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}

	var names []string
	for _, file := range files {
		names = append(names, filepath.Base(file))
	}
	return mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{
		Created: v1.Time{Time: s.Created}, CreatedBy: "tools/image", Comment: path.Join(dir, strings.Join(names, ",")),
	}})
}

// layerArchive returns a tar of files and their directories, owned by root. It contains nothing that depends on this machine.
func layerArchive(dir string, mode int64, at time.Time, files []string) ([]byte, error) {
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)

	for _, parent := range parents(dir) {
		header := tar.Header{Typeflag: tar.TypeDir, Name: parent + "/", Mode: 0o755, ModTime: at, Format: tar.FormatPAX}
		if err := archive.WriteHeader(&header); err != nil {
			return nil, err
		}
	}

	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%w; build the file first, or correct its path", err)
		}
		name := strings.TrimPrefix(path.Join(dir, filepath.Base(file)), "/")
		if err := addFile(archive, name, mode, at, data); err != nil {
			return nil, err
		}
	}

	if err := archive.Close(); err != nil {
		return nil, err
	}

	return buffer.Bytes(), nil
}

func addFile(archive *tar.Writer, name string, mode int64, at time.Time, data []byte) error {
	header := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: at, Format: tar.FormatPAX}
	if err := archive.WriteHeader(&header); err != nil {
		return err
	}
	_, err := archive.Write(data)
	return err
}

// parents returns dir and the directories above it, outermost first, without /.
func parents(dir string) []string {
	var all []string
	for dir = strings.Trim(dir, "/"); dir != "" && dir != "."; dir = path.Dir(dir) {
		all = append([]string{dir}, all...)
	}
	return all
}
