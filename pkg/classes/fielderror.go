// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// FieldError is one problem in a class file:
//
//	gold.yaml:12: resources[0].classes[1].capacity: must not be negative; write 0 or leave it out for unlimited
type FieldError struct {
	File string
	// Line counts from 1; 0 is unknown.
	Line int
	// Field is the path of the field; empty is the whole file.
	Field string
	// Problem is what is wrong, and what would be right.
	Problem string
}

func (e *FieldError) Error() string {
	place := e.File
	switch {
	case e.Line > 0 && e.File == "":
		place = fmt.Sprintf("line %d", e.Line)
	case e.Line > 0:
		place = fmt.Sprintf("%s:%d", e.File, e.Line)
	}

	parts := slices.DeleteFunc([]string{place, e.Field, e.Problem}, func(part string) bool { return part == "" })
	return strings.Join(parts, ": ")
}

// SplitErrors returns the single errors in a tree of errors.Join, in order. An error that wraps several and adds text of its
// own stays whole.
func SplitErrors(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || fmt.Sprint(errors.Join(joined.Unwrap()...)) != err.Error() {
		return []error{err}
	}

	var parts []error
	for _, part := range joined.Unwrap() {
		parts = append(parts, SplitErrors(part)...)
	}
	return parts
}
