// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image builds an OCI image of static programs, without a container engine and without a registry.
//
// The archive is a tar file of an OCI image layout and of docker's manifest.json. "ctr images import", "podman load",
// "skopeo copy oci-archive:" and "docker load" read it. Its content depends only on the arguments and the files: the same
// input results in the same digest.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/tools/image/oci"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "image:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

// run builds the image that the arguments describe, and prints its name and digest to `out`.
func run(args []string, out, usage io.Writer) error {
	s, output, err := parse(args, usage)
	if err != nil {
		return err
	}

	image, err := oci.Build(s)
	if err != nil {
		return err
	}

	digest, err := image.Digest()
	if err != nil {
		return err
	}

	size, err := oci.Save(output, s, image)
	if err != nil {
		return fmt.Errorf("write %s: %w", output, err)
	}

	fmt.Fprintf(out, "name:     %s\ndigest:   %s\nplatform: %s\nsize:     %.1f MB in %s\n",
		s.Name.Name(), digest, s.Platform, float64(size)/1e6, output)
	return nil
}

// parse returns the image that the command line describes, and the archive to write.
func parse(args []string, usage io.Writer) (oci.Spec, string, error) {
	var s oci.Spec
	var name, platform string
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(usage)
	output := flags.String("output", "image.tar", "archive to write")
	flags.StringVar(&name, "name", "", "name of the image, as registry/name:tag")
	flags.StringVar(&platform, "platform", "", "platform that the programs are built for, e.g. linux/amd64")
	flags.StringVar(&s.Title, "title", "", "title of the image")
	s.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		return s, "", fmt.Errorf("%w; see -help", err)
	}

	s.Programs = flags.Args()
	if len(s.Programs) == 0 {
		return s, "", fmt.Errorf("no program is named; name the files for the image after the flags")
	}

	if s.Entrypoint == "" {
		s.Entrypoint = filepath.Base(s.Programs[0])
	}

	var err error
	if s.Name, err = oci.ParseName(name); err != nil {
		return s, "", err
	}

	s.Platform, err = oci.ParsePlatform(platform)
	return s, *output, err
}
