// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"strconv"
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
	// Problem says what is wrong, and what would be right.
	Problem string
}

func (e *FieldError) Error() string {
	var text strings.Builder
	text.WriteString(e.File)
	if e.Line > 0 {
		if e.File == "" {
			text.WriteString("line ")
		} else {
			text.WriteByte(':')
		}
		text.WriteString(strconv.Itoa(e.Line))
	}
	for _, part := range []string{e.Field, e.Problem} {
		if part != "" && text.Len() > 0 {
			text.WriteString(": ")
		}
		text.WriteString(part)
	}
	return text.String()
}

// SplitErrors takes trees of errors.Join apart into single problems, in order. Errors that wrap several but say
// more than those stay whole.
func SplitErrors(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || !justJoins(err, joined.Unwrap()) {
		return []error{err}
	}
	var parts []error
	for _, part := range joined.Unwrap() {
		parts = append(parts, SplitErrors(part)...)
	}
	return parts
}

func justJoins(err error, parts []error) bool {
	texts := make([]string, 0, len(parts))
	for _, part := range parts {
		if part != nil {
			texts = append(texts, part.Error())
		}
	}
	return err.Error() == strings.Join(texts, "\n")
}
