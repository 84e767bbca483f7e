// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// numaMode is a NUMA memory policy.
type numaMode struct {
	// `constant` is the name in NRI and the kernel. `shown` is the name in /proc/PID/numa_maps (mm/mempolicy.c,
	// policy_modes).
	constant, shown string
	// nodes is true if the policy has nodes.
	nodes bool
}

func numaModes() map[string]numaMode {
	return map[string]numaMode{
		"bind": {"MPOL_BIND", "bind", true}, "interleave": {"MPOL_INTERLEAVE", "interleave", true}, "local": {"MPOL_LOCAL", "local", false},
		"preferred": {"MPOL_PREFERRED", "prefer", true}, "preferred-many": {"MPOL_PREFERRED_MANY", "prefer (many)", true},
		"weighted-interleave": {"MPOL_WEIGHTED_INTERLEAVE", "weighted interleave", true},
	}
}

// maxNode is the highest number of a NUMA node (CONFIG_NODES_SHIFT is at most 10).
const maxNode = 1023

func (p *parser) memoryPolicy(f *classes.Field) {
	fields := section(f, "mode", "nodes")
	if fields == nil {
		return
	}
	if fields["mode"] == nil {
		f.Report("needs the field mode, e.g. {mode: interleave, nodes: 0-1}")
		return
	}

	name := oneOf(fields["mode"], sortedKeys(numaModes())...)
	mode := numaModes()[name]
	text := scalar(fields["nodes"], "a list of NUMA nodes like 0-1")
	nodes, err := parseNodes(text)
	switch {
	case mode.nodes && fields["nodes"] == nil:
		f.Report("needs the field nodes, e.g. {mode: %s, nodes: 0-1}", name)
	case !mode.nodes && fields["nodes"] != nil:
		fields["nodes"].Report("must be omitted: the mode %s has no nodes", name)
	case text != "" && err != nil:
		fields["nodes"].Report("must be a list of NUMA nodes like 0-1, not %s", quote(text))
	case name == "preferred" && len(nodes) > 1:
		fields["nodes"].Report("must be one node; the mode preferred-many has several")
	}
	p.set("memoryPolicy", classes.Setting{Name: classes.SettingMemoryPolicy}, fixed(policyText(mode, nodes)))
}

// policyText returns the text of classes.SettingMemoryPolicy. It has the same form as the result of `words`, but does
// not leave out a list of nodes that is only "0".
func policyText(mode numaMode, nodes []int) string {
	text := "mode=" + mode.constant
	if len(nodes) > 0 {
		text += " nodes=" + nodesText(nodes)
	}
	return text
}

// parseNodes reads a list of numbers as in "0-1,3" (the kernel's list format). The result is sorted.
func parseNodes(text string) (nodes []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && isRange {
			last, err = strconv.Atoi(to)
		}
		if err != nil || first < 0 || last < first || last > maxNode {
			return nil, fmt.Errorf("%s is no list of nodes", quote(text))
		}
		for node := first; node <= last; node++ {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}

// nodesText returns a sorted list in the kernel's format.
func nodesText(nodes []int) string {
	var parts []string
	for i := 0; i < len(nodes); {
		end := i
		for end+1 < len(nodes) && nodes[end+1] == nodes[end]+1 {
			end++
		}
		part := strconv.Itoa(nodes[i])
		if end > i {
			part += "-" + strconv.Itoa(nodes[end])
		}
		parts, i = append(parts, part), end+1
	}
	return strings.Join(parts, ",")
}

// parseNUMA returns the text of the memory policy from the first line of /proc/PID/numa_maps. The mode is between the
// address and the first word with a "=", and may have a blank. A policy that no class can have, e.g. one with flags, is
// not an error: the process has set it.
func parseNUMA(maps string) (string, error) {
	line, _, _ := strings.Cut(maps, "\n")
	_, rest, _ := strings.Cut(line, " ")
	shown, list, hasNodes := strings.Cut(rest, ":")
	if !hasNodes || strings.Contains(shown, "=") {
		shown, hasNodes = rest, false
	}
	for _, mode := range numaModes() {
		if hasNodes && shown == mode.shown {
			text, _, _ := strings.Cut(list, " ")
			nodes, err := parseNodes(text)
			return policyText(mode, nodes), err
		}
		if !hasNodes && (rest == mode.shown || strings.HasPrefix(rest, mode.shown+" ")) && !mode.nodes {
			return policyText(mode, nil), nil
		}
	}
	if rest == "default" || strings.HasPrefix(rest, "default ") {
		return "mode=MPOL_DEFAULT", nil
	}
	if rest == "" {
		return "", errors.New("numa_maps has no NUMA policy")
	}
	shown, _, _ = strings.Cut(rest, " ")
	return "mode=" + quote(shown), nil
}
