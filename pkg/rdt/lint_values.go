// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"maps"
	"slices"
	"strings"

	goresctrl "github.com/intel/goresctrl/pkg/rdt"
	"go.yaml.in/yaml/v3"
)

// byID is the rule for what can be given once, or by cache ID.
func (l *linter) byID(isOne func(*yaml.Node) bool, one rule) rule {
	return func(node *yaml.Node, path string) {
		if isOne(node) {
			one(node, path)
			return
		}
		seen := map[string]spans{}
		l.named(func(_ string, key, value *yaml.Node, field string) {
			l.cacheIDs(key, path, seen)
			one(value, field)
		})(node, path)
	}
}

func (l *linter) cacheIDs(key *yaml.Node, path string, seen map[string]spans) {
	if key.Value == goresctrl.CacheIdAll {
		return
	}
	ids, err := parseIDs(key.Value)
	if err != nil {
		l.problem(key, path, `%q is no list of cache IDs: %v; write "all", or IDs as in "0-1,4"`, key.Value, err)
	}
	for _, other := range slices.Sorted(maps.Keys(seen)) {
		if id, twice := ids.common(seen[other]); twice {
			l.problem(key, path, "cache ID %d is in %q and in %q", id, other, key.Value)
		}
	}
	seen[key.Value] = ids
}

func isScalar(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && !isNull(node) }

func isSequence(node *yaml.Node) bool { return node.Kind == yaml.SequenceNode }

// cache is the rule for l2Allocation and l3Allocation.
func (l *linter) cache(inPartition bool) rule {
	share := func(node *yaml.Node, field string) { l.share(node, field, inPartition) }
	return l.byID(isScalar, func(node *yaml.Node, path string) {
		if isScalar(node) {
			share(node, path)
			return
		}
		has := map[string]bool{}
		seen := func(node *yaml.Node, field string) {
			has[field[len(path)+1:]] = true
			share(node, field)
		}
		l.mapping(node, path, fields{"unified": seen, "code": seen, "data": seen})
		switch {
		case has["code"] && !has["data"]:
			l.problem(node, path, "has code but no data; give both, or only unified")
		case has["data"] && !has["code"]:
			l.problem(node, path, "has data but no code; give both, or only unified")
		}
		if !has["unified"] {
			l.problem(node, path, "has no unified; it counts where code and data are not apart")
		}
	})
}

func (l *linter) share(node *yaml.Node, field string, inPartition bool) {
	if !l.text(node, field) {
		return
	}
	p, err := parseProportion(node.Value)
	switch {
	case err != nil:
		l.problem(node, field, "%v", err)
	case inPartition && p.ranged:
		l.problem(node, field, `%q: a partition has no range in per cent; write a share like "60%%", or bits`, node.Value)
	case !inPartition && p.relative() && p.high == 0:
		l.problem(node, field, "%q: a class cannot have none of a cache; write 1%% for the least possible", node.Value)
	}
}

// text says whether the node is a string; numbers must be quoted, because goresctrl's types take no others.
func (l *linter) text(node *yaml.Node, field string) bool {
	switch {
	case node.Kind != yaml.ScalarNode || isNull(node):
		l.problem(node, field, "must be a string")
	case node.ShortTag() != "!!str":
		l.problem(node, field, "must be a string; write it in quotes: %q", strings.TrimSpace(node.Value))
	default:
		return true
	}
	return false
}

// memory is the rule for mbAllocation.
func (l *linter) memory(node *yaml.Node, path string) {
	l.byID(isSequence, func(node *yaml.Node, field string) {
		if !isSequence(node) {
			l.problem(node, field, `must be a list, as in ["50%%", "1000MBps"]`)
			return
		}
		var entries []string
		for _, entry := range node.Content {
			if entry = resolveAlias(entry); l.text(entry, field) {
				entries = append(entries, entry.Value)
			}
		}
		if len(entries) < len(node.Content) {
			return
		}
		if _, err := parseBandwidth(entries); err != nil {
			l.problem(node, field, "%v", err)
		}
	})(node, path)
}
