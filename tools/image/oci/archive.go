// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// Save writes the archive completely or not at all, and returns its size in bytes.
func Save(output string, s Spec, image v1.Image) (int64, error) {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // only a temporary directory stays behind

	if err := writeLayout(dir, s, image); err != nil {
		return 0, err
	}

	var archive bytes.Buffer
	if err := archiveDir(&archive, s, dir); err != nil {
		return 0, err
	}

	unfinished := output + ".new"
	if err := os.WriteFile(unfinished, archive.Bytes(), 0o644); err != nil {
		return 0, err
	}

	if err := os.Rename(unfinished, output); err != nil {
		return 0, errors.Join(err, os.Remove(unfinished))
	}

	return int64(archive.Len()), nil
}

// writeLayout writes an OCI image layout with docker's manifest.json beside it. containerd reads the full name of the
// image from the annotation io.containerd.image.name. Other tools read the tag from org.opencontainers.image.ref.name.
func writeLayout(dir string, s Spec, image v1.Image) error {
	target, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}

	err = target.AppendImage(image, layout.WithPlatform(s.Platform), layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          s.Name.Name(),
		"org.opencontainers.image.ref.name": s.Name.TagStr(),
	}))
	if err != nil {
		return err
	}

	manifest, err := dockerManifest(s, image)
	if err != nil {
		return err
	}

	return target.WriteFile("manifest.json", manifest, 0o644)
}

// dockerManifest returns manifest.json, which "docker load" before version 25 reads instead of index.json. The
// library's tarball package can write manifest.json too, but not into an image layout.
func dockerManifest(s Spec, image v1.Image) ([]byte, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}

	blobPath := func(d v1.Descriptor) string { return path.Join("blobs", d.Digest.Algorithm, d.Digest.Hex) }
	var layers []string
	for _, layer := range manifest.Layers {
		layers = append(layers, blobPath(layer))
	}
	return json.Marshal([]map[string]any{{
		"Config": blobPath(manifest.Config), "RepoTags": []string{s.Name.Name()}, "Layers": layers,
	}})
}

// archiveDir writes the files below `dir` in lexical order, with the time of the image.
func archiveDir(w io.Writer, s Spec, dir string) error {
	archive := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		return addFile(archive, filepath.ToSlash(name), 0o644, s.Created, data)
	})

	return errors.Join(err, archive.Close())
}
