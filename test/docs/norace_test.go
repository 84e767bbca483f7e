// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package docs

const buildFlags = "-race=false"
