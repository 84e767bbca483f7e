// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"fmt"
	"strings"
)

// maxPairsLength bounds the value of a request, in bytes: some fifty pairs of the longest names.
const maxPairsLength = 16 << 10

// Pair asks for a class of a resource; the empty class is a request for the system default.
type Pair struct {
	// Resource is canonical.
	Resource string
	Class    string
}

// ParsePairs reads "resource=class" pairs, separated by commas, with white space around pairs allowed. A resource
// may be repeated only with the same class. Errors are ErrBadRequest or ErrContradiction.
func ParsePairs(value string) ([]Pair, error) {
	var pairs []Pair
	index := map[string]int{}
	err := eachPair(value, func(resource, class string) error {
		at, seen := index[resource]
		if seen && pairs[at].Class != class {
			return twice(resource, pairs[at].Class, class)
		}
		if !seen {
			index[resource] = len(pairs)
			pairs = append(pairs, Pair{resource, class})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the request %w", err)
	}
	return pairs, nil
}

func twice(resource, first, second string) error {
	return &pairError{fmt.Sprintf("%s has two classes, %s and %s", clip(resource), quote(first), quote(second)), ErrContradiction}
}

// eachPair calls use with every pair; resource is canonical. Syntax errors come as *pairError.
func eachPair(value string, use func(resource, class string) error) error {
	if len(value) > maxPairsLength {
		return badPairs("is longer than %d bytes", maxPairsLength)
	}
	rest := strings.TrimSpace(value)
	for more := rest != ""; more; {
		var pair string
		pair, rest, more = strings.Cut(rest, ",")
		resource, class, err := parsePair(strings.TrimSpace(pair))
		if err != nil {
			return err
		}
		if err := use(CanonicalResource(resource), class); err != nil {
			return err
		}
	}
	return nil
}

func parsePair(pair string) (resource, class string, err error) {
	resource, class, found := strings.Cut(pair, "=")
	switch {
	case pair == "":
		return "", "", badPairs("has nothing before or after a comma; write resource=class[,resource=class...]")
	case !found || resource == "":
		return "", "", badPairs("has %s where resource=class is needed", quote(pair))
	case strings.ContainsAny(pair, " \t\r\n") || strings.Contains(class, "="):
		return "", "", badPairs("has %s where resource=class, without spaces, is needed", quote(pair))
	}
	return resource, class, nil
}

// pairError is a problem of a request's value, without saying whose value it is.
type pairError struct {
	problem string
	reason  error
}

func (e *pairError) Error() string { return e.problem }
func (e *pairError) Unwrap() error { return e.reason }

func badPairs(format string, args ...any) error {
	return &pairError{fmt.Sprintf(format, args...), ErrBadRequest}
}
