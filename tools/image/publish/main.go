// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command publish pushes a release to a registry: the image for several platforms with its SBOMs and provenance, the Helm
// chart that installs this image, and the signatures of image and chart. "make release" runs it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "publish:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

// run publishes the release that the arguments describe. It writes to `out` the names and digests of what it has pushed.
func run(ctx context.Context, args []string, out, usage io.Writer) error {
	r, err := parse(args, usage)
	if err != nil {
		return err
	}

	if err := checkRegistry(r); err != nil || r.check {
		return err
	}

	image, err := pushImage(ctx, r)
	if err != nil {
		return err
	}

	fmt.Fprintf(out, "image: %s\n", image)

	chart, err := pushChart(ctx, r, image)
	if err != nil {
		return err
	}

	fmt.Fprintf(out, "chart: %s\n", chart)

	if r.signer == nil {
		return nil
	}

	for _, signed := range []name.Digest{image, chart} {
		if err := sign(ctx, r.signer, signed); err != nil {
			return fmt.Errorf("sign %s: %w", signed, err)
		}
	}

	if r.sums != "" {
		if err := signFile(r.signer, r.sums); err != nil {
			return fmt.Errorf("sign %s: %w", r.sums, err)
		}
	}

	return writePublicKey(r.publicKey, r.signer)
}
