// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Spec describes an image and its content.
type Spec struct {
	Name     Name
	Platform v1.Platform
	// Created is the time of the image and of every file in it.
	Created time.Time

	// Source is the URL of the source code. Revision is its commit. Licenses is an SPDX expression.
	Title, Source, Version, Revision, Licenses string

	Entrypoint string
	// Programs and Documents are the paths of files for the image. The image has each file under its base name.
	Programs, Documents []string
}

// AddFlags adds the flags that all programs of this module have. They set fields of `s`, and their default is the zero
// value.
func (s *Spec) AddFlags(flags *flag.FlagSet) {
	s.Created = time.Unix(0, 0).UTC()
	flags.Func("epoch", "creation time of the output and of its files, in seconds since 1970", func(text string) error {
		seconds, err := strconv.ParseInt(text, 10, 64)
		s.Created = time.Unix(seconds, 0).UTC()
		return err
	})
	flags.StringVar(&s.Source, "source", "", "URL of the source")
	flags.StringVar(&s.Version, "version", "", "version of the programs, e.g. v0.1.0")
	flags.StringVar(&s.Revision, "revision", "", "commit that the programs are built from")
	flags.StringVar(&s.Licenses, "licenses", "", "licences as an SPDX expression")
	flags.StringVar(&s.Entrypoint, "entrypoint", "", "name of the program that an image starts; for one image, the first program if empty")
	flags.Func("documents", "files to put into "+DocumentsDir+", separated by commas", func(text string) error {
		s.Documents = slices.DeleteFunc(strings.Split(text, ","), func(file string) bool { return file == "" })
		return nil
	})
}

// labels returns the image's labels, with the predefined keys of the OCI image specification.
func (s Spec) labels() map[string]string {
	labels := map[string]string{}
	for key, value := range map[string]string{
		"title": s.Title, "source": s.Source, "version": s.Version, "revision": s.Revision, "licenses": s.Licenses,
	} {
		if value != "" {
			labels["org.opencontainers.image."+key] = value
		}
	}
	return labels
}

// Name is a repository and a tag.
type Name struct{ name.Tag }

// ParseName parses a name of the form registry/name:tag.
func ParseName(text string) (Name, error) {
	tag, err := name.NewTag(text, name.StrictValidation)
	if err != nil {
		return Name{}, fmt.Errorf("-name %q is not a valid image name: %w; write registry/name:tag, e.g. localhost/qos-nri-plugin:dev",
			text, err)
	}
	return Name{tag}, nil
}

// Name returns the full name as container engines store it: with docker.io instead of the host of Docker Hub's registry.
func (n Name) Name() string {
	if rest, found := strings.CutPrefix(n.Tag.Name(), name.DefaultRegistry+"/"); found {
		return "docker.io/" + rest
	}
	return n.Tag.Name()
}

// ParsePlatform returns the platform of `text`, e.g. linux/amd64. The operating system must be Linux.
func ParsePlatform(text string) (v1.Platform, error) {
	platform, err := v1.ParsePlatform(text)
	if err != nil || platform.OS != "linux" || platform.Architecture == "" {
		return v1.Platform{}, fmt.Errorf("-platform %q is not supported; write linux/ and Go's name of the architecture, e.g. linux/arm64", text)
	}
	return *platform, nil
}
