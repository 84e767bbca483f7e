// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image puts static programs into an OCI image, without a container engine and without a registry.
//
// The archive that it writes is an OCI image layout in a tar file that also has the index of "docker save", so that
// "ctr images import", "podman load", "skopeo copy oci-archive:" and "docker load" all read it. What is in it follows from
// the arguments and the files alone: the same input makes the same digest.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "image:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

// run makes the image that the arguments describe, and says on out what it is.
func run(args []string, out, usage io.Writer) error {
	s, output, err := parse(args, usage)
	if err != nil {
		return err
	}
	image, err := build(s)
	if err != nil {
		return err
	}
	size, err := save(output, s, image)
	if err != nil {
		return fmt.Errorf("write %s: %w", output, err)
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "name:     %s\ndigest:   %s\nplatform: %s\nsize:     %.1f MB in %s\n",
		s.name.Name(), digest, s.platform, float64(size)/1e6, output)
	return nil
}

// parse reads the command line.
func parse(args []string, usage io.Writer) (spec, string, error) {
	var s spec
	var name, platform, documents string
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(usage)
	output := flags.String("output", "image.tar", "archive to write")
	flags.StringVar(&name, "name", "", "name of the image, as registry/name:tag")
	flags.StringVar(&platform, "platform", "", "as linux/amd64; what the programs are built for")
	epoch := flags.Int64("epoch", 0, "time of everything in the image, in seconds since 1970")
	flags.StringVar(&documents, "documents", "", "files to put into "+documentsDir+", separated by commas")
	flags.StringVar(&s.title, "title", "", "what the image is")
	flags.StringVar(&s.source, "source", "", "where its source is")
	flags.StringVar(&s.version, "version", "", "version of the programs")
	flags.StringVar(&s.revision, "revision", "", "commit that they are built from")
	flags.StringVar(&s.licenses, "licenses", "", "SPDX expression")
	flags.StringVar(&s.entrypoint, "entrypoint", "", "name of the program that is started; the first one if empty")
	if err := flags.Parse(args); err != nil {
		return s, "", fmt.Errorf("%w; see -help", err)
	}
	s.created, s.programs = time.Unix(*epoch, 0).UTC(), flags.Args()
	if documents != "" {
		s.documents = strings.Split(documents, ",")
	}
	if len(s.programs) == 0 {
		return s, "", fmt.Errorf("no program is named; give the files to put into the image after the flags")
	}
	if s.entrypoint == "" {
		s.entrypoint = filepath.Base(s.programs[0])
	}
	var err error
	if s.name, err = parseName(name); err != nil {
		return s, "", err
	}
	s.platform, err = parsePlatform(platform)
	return s, *output, err
}
