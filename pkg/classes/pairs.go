// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import "strings"

// maxPairsLength is the maximum size of the value of a request, in bytes. It is enough for about fifty pairs with the
// longest names.
const maxPairsLength = 16 << 10

// Pair is a request for a class of a resource. The empty class requests the system default.
type Pair struct {
	// Resource is the canonical name of the resource.
	Resource string
	Class    string
}

// ParsePairs reads "resource=class" pairs, separated by commas. White space around pairs is allowed. A resource may be
// repeated only with the same class. Errors are ErrBadRequest or ErrContradiction.
func ParsePairs(value string) ([]Pair, error) {
	var pairs []Pair
	classes := map[string]string{}
	err := eachPair(value, func(resource, class string) error {
		first, seen := classes[resource]
		if seen && first != class {
			return twoClassesOf(Assignment{Resource: resource, Class: class}, first)
		}
		if !seen {
			classes[resource] = class
			pairs = append(pairs, Pair{resource, class})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return pairs, nil
}

// eachPair calls use with every pair. The resource in the call is the canonical name.
func eachPair(value string, use func(resource, class string) error) error {
	if len(value) > maxPairsLength {
		return badRequest("the request is longer than %d bytes", maxPairsLength)
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
		err = badRequest("the request has nothing before or after a comma; write resource=class[,resource=class...]")
	case !found || resource == "":
		err = badRequest("the request has %s where resource=class is needed", quote(pair))
	case strings.ContainsAny(pair, " \t\r\n") || strings.Contains(class, "="):
		err = badRequest("the request has %s where resource=class, without spaces, is needed", quote(pair))
	}
	return resource, class, err
}

func badRequest(format string, args ...any) error {
	return refuse(Assignment{}, ErrBadRequest, format, args...)
}
