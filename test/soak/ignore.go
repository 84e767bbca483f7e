// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "regexp"

// regexpFlag is a regular expression on the command line.
type regexpFlag struct{ expression *regexp.Regexp }

func (f *regexpFlag) String() string {
	if f.expression == nil {
		return ""
	}
	return f.expression.String()
}

func (f *regexpFlag) Set(text string) (err error) {
	f.expression, err = regexp.Compile(text)
	return err
}

// matches reports whether there is an expression and `text` matches it.
func (f *regexpFlag) matches(text string) bool {
	return f.expression != nil && f.expression.MatchString(text)
}
