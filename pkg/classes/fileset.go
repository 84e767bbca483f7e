// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

// FileSet is a set of class files that was read, with the outcome of reading it.
type FileSet struct {
	Files []string
	// Hash identifies the content of the files.
	Hash string
	// Config is what the files contain; nil when Err says why they could not be read.
	Config *Config
	Err    error
}
