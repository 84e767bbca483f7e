// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command plugin is a small program that links a module.
package main

import "golang.org/x/sync/errgroup"

func main() {
	var group errgroup.Group
	_ = group.Wait()
}
