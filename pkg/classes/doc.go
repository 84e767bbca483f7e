// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package classes knows QoS-class resources: their names, class files, requests, and who has which class.
// It follows KEP-3008, decides only, and does no I/O.
package classes
