// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// pushChart sets the version of the release and the digest of its image in the chart, and pushes the chart in Helm's
// format: https://helm.sh/docs/topics/registries
func pushChart(ctx context.Context, r release, image name.Digest) (name.Digest, error) {
	files, err := readChart(r.chartDir)
	if err != nil {
		return name.Digest{}, err
	}

	if err := setVersions(files, r, image); err != nil {
		return name.Digest{}, err
	}

	archive, err := chartArchive(files, r.name, r.created)
	if err != nil {
		return name.Digest{}, err
	}

	metadata, err := yaml.YAMLToJSON(files["Chart.yaml"])
	if err != nil {
		return name.Digest{}, err
	}

	blobs := []v1.Layer{
		static.NewLayer(metadata, "application/vnd.cncf.helm.config.v1+json"),
		static.NewLayer(archive, "application/vnd.cncf.helm.chart.content.v1.tar+gzip"),
	}

	manifest, err := chartManifest(blobs[0], blobs[1])
	if err != nil {
		return name.Digest{}, err
	}

	return push(ctx, r.chart, manifest, func(options ...remote.Option) error {
		for _, blob := range blobs {
			if err := remote.WriteLayer(r.chart.Context(), blob, options...); err != nil {
				return err
			}
		}
		return remote.Put(r.chart, manifest, options...)
	})
}

// chartManifest returns the manifest of a chart. Unlike the config of an image, the config of a chart is Chart.yaml, as JSON.
func chartManifest(metadata, archive v1.Layer) (artifact, error) {
	config, err := partial.Descriptor(metadata)
	if err != nil {
		return nil, err
	}
	layer, err := partial.Descriptor(archive)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: *config, Layers: []v1.Descriptor{*layer},
	})
}

// artifact is a manifest.
type artifact []byte

// RawManifest returns the manifest.
func (a artifact) RawManifest() ([]byte, error) { return a, nil }

// MediaType returns the media type of the manifest.
func (artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// Digest returns the digest of the manifest.
func (a artifact) Digest() (v1.Hash, error) { return partial.Digest(a) }
