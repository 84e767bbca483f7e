// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sbom writes the SBOM of programs that a release has outside of its image. "make release" runs it.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/qos-nri/qos-nri-plugin/tools/image/oci"
)

func main() {
	var s oci.Spec
	flag.StringVar(&s.Title, "name", "", "name of the document")
	s.AddFlags(flag.CommandLine)
	programs := flag.String("programs", "", "directory of the programs, with one directory for each platform, e.g. linux/amd64")
	output := flag.String("output", "", "file to write")
	flag.Parse()

	document, err := oci.SBOM(s, *programs)
	if err == nil {
		err = os.WriteFile(*output, document, 0o644) //nolint:gosec // a published file
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}
