// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package qosv1alpha1 is the node API: the messages that KEP-3008 adds to the CRI, and the gRPC service that uses them.
package qosv1alpha1
