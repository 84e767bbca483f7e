// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	goresctrl "github.com/intel/goresctrl/pkg/rdt"
	"go.yaml.in/yaml/v3"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// lint finds what is wrong with a configuration whatever the machine, with the line of each problem. goresctrl's own
// types cannot: they ignore unknown fields of caches and know no lines.
func lint(section []byte) error {
	var document yaml.Node
	if err := yaml.Unmarshal(section, &document); err != nil {
		return yamlError(err)
	}
	var value any
	if err := document.Decode(&value); err != nil { // finds keys that are there twice, and aliases that contain themselves
		return yamlError(err)
	}
	l := &linter{classes: map[string]int{}}
	if len(document.Content) > 0 {
		l.mapping(document.Content[0], "", fields{
			"options":    l.options,
			"partitions": l.named(l.partition),
		})
	}
	return errors.Join(l.problems...)
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// yamlError makes FieldErrors of what a YAML package found wrong; it says the line in its text.
func yamlError(err error) error {
	var problems []error
	for text := range strings.SplitSeq(err.Error(), "\n") {
		text = strings.TrimPrefix(strings.TrimSpace(text), "yaml: ")
		if strings.HasSuffix(text, "unmarshal errors:") {
			continue
		}
		line := 0
		if match := yamlLine.FindStringSubmatch(text); match != nil {
			line, _ = strconv.Atoi(match[1])
			text = strings.Replace(text, match[0], "", 1)
		}
		problems = append(problems, &classes.FieldError{Line: line, Problem: text})
	}
	return errors.Join(problems...)
}

type linter struct {
	problems []error
	// classes are the lines of those seen so far.
	classes map[string]int
}

// rule looks at the value of one field.
type rule func(node *yaml.Node, field string)

// fields are the rules of a mapping's known fields, by name.
type fields map[string]rule

func (l *linter) problem(node *yaml.Node, field, format string, args ...any) {
	l.problems = append(l.problems, &classes.FieldError{Line: node.Line, Field: field, Problem: fmt.Sprintf(format, args...)})
}

func resolveAlias(node *yaml.Node) *yaml.Node {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	return node
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" }

// mapping checks a mapping with a fixed set of fields. Names match in any case, as in goresctrl.
func (l *linter) mapping(node *yaml.Node, path string, known fields) {
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	l.entries(node, path, func(key, value *yaml.Node) {
		for _, name := range names {
			if strings.EqualFold(name, key.Value) {
				known[name](value, join(path, name))
				return
			}
		}
		l.problem(key, join(path, key.Value), "unknown field; there are %s", strings.Join(names, ", "))
	})
}

// named is the rule for a mapping whose keys are names.
func (l *linter) named(each func(name string, key, value *yaml.Node, field string)) rule {
	return func(node *yaml.Node, path string) {
		l.entries(node, path, func(key, value *yaml.Node) {
			each(key.Value, key, value, join(path, key.Value))
		})
	}
}

// entries goes through the fields of a mapping, merged ones ("<<") included.
func (l *linter) entries(node *yaml.Node, path string, each func(key, value *yaml.Node)) {
	l.unseen(node, path, map[string]bool{}, each)
}

func (l *linter) unseen(node *yaml.Node, path string, seen map[string]bool, each func(key, value *yaml.Node)) {
	node = resolveAlias(node)
	if isNull(node) {
		return
	}
	if node.Kind != yaml.MappingNode {
		l.problem(node, path, "must be a mapping")
		return
	}
	var merged []*yaml.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := resolveAlias(node.Content[i]), resolveAlias(node.Content[i+1])
		switch {
		case key.Tag == "!!merge" && value.Kind == yaml.SequenceNode:
			merged = append(merged, value.Content...)
		case key.Tag == "!!merge":
			merged = append(merged, value)
		case !seen[key.Value]:
			seen[key.Value] = true
			each(key, value)
		}
	}
	for _, node := range merged {
		l.unseen(node, path, seen, each)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func (l *linter) options(node *yaml.Node, path string) {
	option := func(node *yaml.Node, path string) {
		l.mapping(node, path, fields{"optional": l.boolean})
	}
	l.mapping(node, path, fields{"l2": option, "l3": option, "mb": option})
}

func (l *linter) boolean(node *yaml.Node, field string) {
	switch strings.ToLower(node.Value) {
	case "true", "false", "yes", "no", "on", "off", "y", "n": // as YAML 1.1 has it
	default:
		l.problem(node, field, "must be true or false")
	}
}

func (l *linter) partition(_ string, _, node *yaml.Node, path string) {
	has := map[string]bool{}
	allocation := func(check rule) rule {
		return func(node *yaml.Node, field string) {
			has[field[len(path)+1:]] = true
			check(node, field)
		}
	}
	var inside *yaml.Node
	l.mapping(node, path, fields{
		"l2Allocation": allocation(l.cache(true)),
		"l3Allocation": allocation(l.cache(true)),
		"mbAllocation": allocation(l.memory),
		"classes":      func(node *yaml.Node, _ string) { inside = node },
	})
	if inside == nil {
		return
	}
	l.named(func(name string, key, node *yaml.Node, field string) {
		l.className(name, key, field)
		l.class(node, field, has)
	})(inside, join(path, "classes"))
}

func (l *linter) className(name string, key *yaml.Node, field string) {
	switch {
	case className(name) == classes.SystemDefault:
	case strings.ContainsAny(name, "/\n"), name == ".", name == "..":
		l.problem(key, field, "a class name must not have %q or a line break, as it becomes a directory", "/")
	case len(GroupPrefix+name) > maxFileName:
		l.problem(key, field, "a class name must not be longer than %d characters", maxFileName-len(GroupPrefix))
	}
	if line, ok := l.classes[className(name)]; ok {
		if className(name) == classes.SystemDefault {
			name = goresctrl.RootClassName
		}
		l.problem(key, field, "class %q is already in line %d; a class is in one partition", name, line)
	}
	l.classes[className(name)] = key.Line
}

func (l *linter) class(node *yaml.Node, path string, partitionHas map[string]bool) {
	allocation := func(check rule) rule {
		return func(node *yaml.Node, field string) {
			name := field[len(path)+1:]
			if !partitionHas[name] {
				l.problem(node, field, "its partition has no %s; say there what the partition has, e.g. 100%%", name)
			}
			check(node, field)
		}
	}
	l.mapping(node, path, fields{
		"l2Allocation": allocation(l.cache(false)),
		"l3Allocation": allocation(l.cache(false)),
		"mbAllocation": allocation(l.memory),
		"kubernetes": func(node *yaml.Node, path string) {
			l.mapping(node, path, fields{"denyPodAnnotation": l.boolean, "denyContainerAnnotation": l.boolean})
		},
	})
}
