// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

type spec struct {
	name     imageName
	platform v1.Platform
	// created is the time of the image and of every file in it.
	created time.Time

	title, source, version, revision, licenses string

	entrypoint string
	// programs and documents are files for the image, which has them under their base names.
	programs, documents []string
}

// labels returns the image's labels, with the predefined keys of the OCI image specification.
func (s spec) labels() map[string]string {
	labels := map[string]string{}
	for key, value := range map[string]string{
		"title": s.title, "source": s.source, "version": s.version, "revision": s.revision, "licenses": s.licenses,
	} {
		if value != "" {
			labels["org.opencontainers.image."+key] = value
		}
	}
	return labels
}

// imageName is a repository and a tag.
type imageName struct{ name.Tag }

func parseName(text string) (imageName, error) {
	tag, err := name.NewTag(text, name.StrictValidation)
	if err != nil {
		return imageName{}, fmt.Errorf("-name %q is not a valid image name: %w; write registry/name:tag, e.g. localhost/qos-nri-plugin:dev",
			text, err)
	}
	return imageName{tag}, nil
}

// Name returns the full name as container engines store it: with docker.io instead of the host of Docker Hub's registry.
func (n imageName) Name() string {
	if rest, found := strings.CutPrefix(n.Tag.Name(), name.DefaultRegistry+"/"); found {
		return "docker.io/" + rest
	}
	return n.Tag.Name()
}

func parsePlatform(text string) (v1.Platform, error) {
	platform, err := v1.ParsePlatform(text)
	if err != nil || platform.OS != "linux" || platform.Architecture == "" {
		return v1.Platform{}, fmt.Errorf("-platform %q is not supported; write linux/ and Go's name of the architecture, e.g. linux/arm64", text)
	}
	return *platform, nil
}
