// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package classes has QoS-class resources: their names, class files, requests, and the ledger of their holders.
// It follows KEP-3008, makes decisions only, and does no I/O.
package classes
