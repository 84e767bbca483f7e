// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"fmt"
	"slices"
	"strings"
)

// podName is the name of a pod as kubectl takes it, also as pod/NAME. The error says that it is of something else.
func podName(word string) (string, error) { return nameOf(word, "pod", "pods", "po") }

// nodeName is the name of a node as kubectl takes it, also as node/NAME. The error says that it is of something else.
func nodeName(word string) (string, error) { return nameOf(word, "node", "nodes", "no") }

// nameOf takes NAME and TYPE/NAME, where the type may be written in several ways; errors have the first one.
func nameOf(word string, types ...string) (string, error) {
	of, name, typed := strings.Cut(word, "/")
	switch {
	case !typed:
		return word, nil
	case !slices.Contains(types, strings.ToLower(of)):
		return "", fmt.Errorf("%q is no %s; name a %s, as NAME or %s/NAME", word, types[0], types[0], types[0])
	case name == "" || strings.Contains(name, "/"):
		return "", fmt.Errorf("%q names no %s; name one as NAME or %s/NAME", word, types[0], types[0])
	}
	return name, nil
}
