// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/qos-nri/qos-nri-plugin/tools/image/oci"
)

// release describes what to publish.
type release struct {
	// image and chart are the repositories to push to. The tag of each is the version of the release.
	image oci.Name
	chart name.Tag
	// `name` is the name of the chart, and `created` is the time of its files.
	name    string
	created time.Time
	// images are the images of the platforms. `builder` is the URI of the system that built them.
	images  []oci.Spec
	builder string
	// chartDir has the source of the chart.
	chartDir string
	// signer signs image and chart, if it is not nil.
	signer crypto.Signer
	// sums is a file to sign with signer. It is empty if no file is to be signed.
	sums string
	// publicKey is the path of the file for the signer's public key.
	publicKey string
	// check is true if the command only checks that the registry can be written to, and publishes nothing.
	check bool
}

// parse returns the release that the command line describes.
func parse(args []string, usage io.Writer) (release, error) {
	var r release
	var s oci.Spec
	var registry, platforms, programs, key string
	flags := flag.NewFlagSet("publish", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.BoolVar(&r.check, "check", false, "only check that the registry can be written to")
	flags.StringVar(&registry, "registry", "", "registry, or a path in it, e.g. registry.example/qos")
	flags.StringVar(&r.chartDir, "chart", "", "directory of the chart")
	flags.StringVar(&platforms, "platforms", "", "platforms of the image, separated by commas")
	flags.StringVar(&programs, "programs", "", "directory of the programs, with one directory for each platform, e.g. linux/amd64")
	flags.StringVar(&s.Title, "name", "", "name of image and chart")
	s.AddFlags(flags)
	flags.StringVar(&r.builder, "builder", "", "URI of the build system, for the provenance")
	flags.StringVar(&key, "key", "", "file of a private key, as cosign generate-key-pair makes it; its password is in COSIGN_PASSWORD")
	flags.StringVar(&r.sums, "sums", "", "file of checksums to sign with -key; the signature is in a file with the suffix .sig")
	flags.StringVar(&r.publicKey, "public-key", "cosign.pub", "file to write the public key of -key to")
	if err := flags.Parse(args); err != nil {
		return r, fmt.Errorf("%w; see -help", err)
	}

	var err error
	if r.image, err = oci.ParseName(registry + "/" + s.Title + ":" + s.Version); err != nil {
		return r, err
	}

	chart, err := oci.ParseName(registry + "/charts/" + s.Title + ":" + strings.TrimPrefix(s.Version, "v"))
	if err != nil {
		return r, err
	}

	r.chart = chart.Tag
	if key != "" {
		if r.signer, err = readKey(key, []byte(os.Getenv("COSIGN_PASSWORD"))); err != nil {
			return r, fmt.Errorf("read -key: %w", err)
		}
	}

	if r.check {
		return r, nil
	}

	s.Name, r.name, r.created = r.image, s.Title, s.Created
	r.images, err = images(s, strings.Split(platforms, ","), programs)
	return r, err
}

// images returns the image for each platform. Its programs are the files in the platform's directory.
func images(s oci.Spec, platforms []string, dir string) ([]oci.Spec, error) {
	var specs []oci.Spec
	for _, text := range platforms {
		platform, err := oci.ParsePlatform(text)
		if err != nil {
			return nil, err
		}
		programs, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(text), "*"))
		if err != nil {
			return nil, err
		}
		if len(programs) == 0 {
			return nil, fmt.Errorf("no programs in %s; build them first", filepath.Join(dir, text))
		}
		s.Platform, s.Programs = platform, programs
		specs = append(specs, s)
	}

	return specs, nil
}
