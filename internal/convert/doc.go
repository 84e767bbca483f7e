// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package convert turns manifests in the form of KEP-3008, with qosResources fields, into what stock Kubernetes takes: extended
// resources, and annotations for what those cannot say. What has nothing to do with it stays as it is, to the byte.
package convert
