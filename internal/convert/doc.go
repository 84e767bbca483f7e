// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package convert turns manifests with the qosResources fields of KEP-3008 into manifests for stock Kubernetes, with extended resources
// and annotations. It edits YAML and JSON with kyaml: comments and the order of fields are kept, blank lines and indentation are
// normalized. A document without these fields is copied byte by byte.
package convert
