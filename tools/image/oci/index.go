// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"encoding/json"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Index returns the index of the images for several platforms. After each image, the index has the image's attestations: an
// SBOM and a provenance. The parameter `builder` is the URI of the system that ran the build. The attestations are stored as BuildKit
// stores them, because registries and tools show this form:
// https://github.com/moby/buildkit/blob/master/docs/attestations/attestation-storage.md
func Index(specs []Spec, builder string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, s := range specs {
		image, err := Build(s)
		if err != nil {
			return nil, err
		}
		digest, err := image.Digest()
		if err != nil {
			return nil, err
		}
		attestations, err := attest(s, digest, builder)
		if err != nil {
			return nil, err
		}

		index = mutate.AppendManifests(index,
			mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &s.Platform}},
			mutate.IndexAddendum{Add: attestations, Descriptor: v1.Descriptor{
				Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"},
				Annotations: map[string]string{
					"vnd.docker.reference.type":   "attestation-manifest",
					"vnd.docker.reference.digest": digest.String(),
				},
			}})
	}

	return mutate.Annotations(index, specs[0].labels()).(v1.ImageIndex), nil //nolint:errcheck // Annotations returns the type that it gets
}

// attest returns the attestations of the image with the given digest. They are packed as another image, which has one
// layer for each statement.
func attest(s Spec, digest v1.Hash, builder string) (v1.Image, error) {
	programs, err := readPrograms(s.Programs)
	if err != nil {
		return nil, err
	}

	image, err := mutate.ConfigFile(mutate.MediaType(empty.Image, types.OCIManifestSchema1), &v1.ConfigFile{
		OS: "unknown", Architecture: "unknown", RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}

	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)

	for _, predicate := range []predicate{
		{kind: "https://spdx.dev/Document", content: sbom(s, s.Name.Name(), digest.Hex, programs)},
		{kind: "https://slsa.dev/provenance/v1", content: provenance(s, programs, builder)},
	} {
		statement, err := json.Marshal(predicate.about(s, digest))
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{
			Layer:       static.NewLayer(statement, "application/vnd.in-toto+json"),
			Annotations: map[string]string{"in-toto.io/predicate-type": predicate.kind},
		})
		if err != nil {
			return nil, err
		}
	}

	return image, nil
}

// predicate is the content of an in-toto statement.
type predicate struct {
	// kind is the URI of its type.
	kind    string
	content any
}

// about returns the in-toto statement with the predicate about an image:
// https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md
func (p predicate) about(s Spec, digest v1.Hash) map[string]any {
	return map[string]any{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       []map[string]any{{"name": s.Name.Name(), "digest": map[string]string{digest.Algorithm: digest.Hex}}},
		"predicateType": p.kind,
		"predicate":     p.content,
	}
}
