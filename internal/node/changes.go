// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import "github.com/qos-nri/qos-nri-plugin/pkg/classes"

// ChangeStore remembers the classes of containers and pods that were changed after their creation, which neither the
// runtime nor the kernel can tell after a restart. Its methods are called under a lock of Node, and only Set may do I/O.
type ChangeStore interface {
	// Get returns the changed assignments of a container or sandbox.
	Get(id string) ([]classes.Assignment, bool)
	// Set replaces them, durably; none forgets the ID.
	Set(id string, changed []classes.Assignment) error
	// Forget drops an ID that is gone.
	Forget(id string)
	// Keep drops every ID that live does not know.
	Keep(live func(id string) bool)
}

// forgetful is a ChangeStore that remembers nothing.
type forgetful struct{}

func (forgetful) Get(string) ([]classes.Assignment, bool) { return nil, false }
func (forgetful) Set(string, []classes.Assignment) error  { return nil }
func (forgetful) Forget(string)                           {}
func (forgetful) Keep(func(string) bool)                  {}
