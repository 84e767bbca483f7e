// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// save writes the archive whole or not at all, and returns its size in bytes.
func save(output string, s spec, image v1.Image) (int64, error) {
	var buffer bytes.Buffer
	if err := writeArchive(&buffer, s, image); err != nil {
		return 0, err
	}
	unfinished := output + ".new"
	if err := os.WriteFile(unfinished, buffer.Bytes(), 0o644); err != nil {
		return 0, err
	}
	if err := os.Rename(unfinished, output); err != nil {
		return 0, errors.Join(err, os.Remove(unfinished))
	}
	return int64(buffer.Len()), nil
}

// writeArchive writes an OCI image layout (image-spec, image-layout.md) with docker's manifest.json beside it.
func writeArchive(w io.Writer, s spec, image v1.Image) error {
	archive := layoutArchive{tar: tar.NewWriter(w), at: s.created, written: map[v1.Hash]bool{}}
	if err := archive.add("oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"}); err != nil {
		return err
	}
	layers, err := archive.addBlobs(image)
	if err != nil {
		return err
	}
	config, err := image.ConfigName()
	if err != nil {
		return err
	}
	// "docker load" before version 25 reads this file; later ones and all others read index.json.
	err = archive.add("manifest.json", []map[string]any{{
		"Config": blobPath(config), "RepoTags": []string{s.name.Name()}, "Layers": layers,
	}})
	if err != nil {
		return err
	}
	index, err := indexOf(s, image)
	if err != nil {
		return err
	}
	if err := archive.add("index.json", index); err != nil {
		return err
	}
	return archive.tar.Close()
}

// indexOf names the image, the full name in the annotation that containerd goes by, the tag in that of the specification.
func indexOf(s spec, image v1.Image) (v1.IndexManifest, error) {
	descriptor, err := partial.Descriptor(image)
	if err != nil {
		return v1.IndexManifest{}, err
	}
	descriptor.Platform = &s.platform
	descriptor.Annotations = map[string]string{
		"io.containerd.image.name":          s.name.Name(),
		"org.opencontainers.image.ref.name": s.name.TagStr(),
	}
	return v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{*descriptor}}, nil
}

// layoutArchive is an image layout in a tar.
type layoutArchive struct {
	tar     *tar.Writer
	at      time.Time
	written map[v1.Hash]bool
}

func blobPath(digest v1.Hash) string { return path.Join("blobs", digest.Algorithm, digest.Hex) }

// addBlobs writes layers, configuration and manifest, and returns the paths of the layers.
func (a *layoutArchive) addBlobs(image v1.Image) ([]string, error) {
	layers, err := image.Layers()
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, layer := range layers {
		compressed, err := layer.Compressed()
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(compressed)
		if err := errors.Join(err, compressed.Close()); err != nil {
			return nil, err
		}
		digest, err := a.addBlob(data)
		if err != nil {
			return nil, err
		}
		paths = append(paths, blobPath(digest))
	}
	config, configErr := image.RawConfigFile()
	manifest, manifestErr := image.RawManifest()
	if err := errors.Join(configErr, manifestErr); err != nil {
		return nil, err
	}
	for _, blob := range [][]byte{config, manifest} {
		if _, err := a.addBlob(blob); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

func (a *layoutArchive) addBlob(data []byte) (v1.Hash, error) {
	digest, _, err := v1.SHA256(bytes.NewReader(data))
	if err != nil || a.written[digest] {
		return digest, err
	}
	a.written[digest] = true
	return digest, addFile(a.tar, blobPath(digest), 0o644, a.at, data)
}

func (a *layoutArchive) add(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return addFile(a.tar, name, 0o644, a.at, data)
}
