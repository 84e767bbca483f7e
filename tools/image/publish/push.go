// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/qos-nri/qos-nri-plugin/tools/image/oci"
)

// checkRegistry returns an error if the registry cannot be written to.
func checkRegistry(r release) error {
	for _, tag := range []name.Tag{r.image.Tag, r.chart} {
		if err := remote.CheckPushPermission(tag, authn.DefaultKeychain, http.DefaultTransport); err != nil {
			return fmt.Errorf("the registry does not accept %s: %w; check the name, that the registry runs, and log in", tag.Context(), err)
		}
	}
	return nil
}

// pushImage pushes the image for all platforms with its attestations.
func pushImage(ctx context.Context, r release) (name.Digest, error) {
	index, err := oci.Index(r.images, r.builder)
	if err != nil {
		return name.Digest{}, err
	}
	return push(ctx, r.image.Tag, index, func(options ...remote.Option) error { return remote.WriteIndex(r.image.Tag, index, options...) })
}

// push publishes content under a tag, by calling the function `write`. If the tag already exists with another digest,
// it returns an error, because published releases do not change.
func push(ctx context.Context, tag name.Tag, content interface{ Digest() (v1.Hash, error) }, write func(...remote.Option) error) (name.Digest, error) {
	digest, err := content.Digest()
	if err != nil {
		return name.Digest{}, err
	}

	options := []remote.Option{remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithContext(ctx)}

	existing, err := remote.Head(tag, options...)
	if err == nil && existing.Digest != digest {
		return name.Digest{}, fmt.Errorf("%s exists with other content, digest %s instead of %s; release another version", tag, existing.Digest, digest)
	}
	if err != nil && !isNotFound(err) {
		return name.Digest{}, fmt.Errorf("look for %s: %w", tag, err)
	}

	if err := write(options...); err != nil {
		return name.Digest{}, fmt.Errorf("push %s: %w", tag, err)
	}

	return tag.Context().Digest(digest.String()), nil
}

// isNotFound reports whether the registry answered that it does not have the requested content.
func isNotFound(err error) bool {
	var answer *transport.Error
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
}
