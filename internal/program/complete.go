// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// CompletePairs completes the last RESOURCE=CLASS pair of an argument. `begun` is the part of the argument that the
// user has typed. CompletePairs offers the given classes, except those of resources that have an earlier pair in this
// argument, or any pair in the arguments before it. "RESOURCE-", which removes a request, counts as a pair. RESOURCE is
// the short name of the resource or, if the pair with this name does not begin as typed, the full name.
func CompletePairs(offers []classes.Pair, before []string, begun string) (words []string) {
	at := strings.LastIndex(begun, ",") + 1
	done, last := begun[:at], begun[at:]
	named := map[string]bool{}
	for pair := range strings.SplitSeq(strings.Join(append(slices.Clone(before), done), ","), ",") {
		name, _, _ := strings.Cut(pair, "=")
		named[classes.CanonicalResource(strings.TrimSuffix(name, "-"))] = true
	}

	for _, offer := range offers {
		for _, name := range []string{classes.ShortResource(offer.Resource), offer.Resource} {
			if word := name + "=" + offer.Class; !named[offer.Resource] && strings.HasPrefix(word, last) {
				words = append(words, done+word)
				break
			}
		}
	}
	return words
}
