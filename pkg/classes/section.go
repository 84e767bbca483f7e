// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readBackend finds the one field of a resource that configures its backend, and has it parsed.
func (p *parser) readBackend(r *draft, e entry, fields map[string]entry) {
	var found []string
	for i := range p.kinds {
		field := p.kinds[i].Field
		if section, ok := fields[field]; ok {
			found = append(found, field)
			r.kind, r.Kind, r.section = &p.kinds[i], field, section
		}
	}
	switch {
	case len(found) == 0:
		r.document.fault(e.line, e.at, "has no backend; add one of the fields %s", p.backends())
		return
	case len(found) > 1:
		r.document.fault(r.section.line, r.section.at, "is one backend too many: the resource has %s; make it two resources", strings.Join(found, " and "))
		r.kind = nil
		return
	}
	r.Mutable = r.kind.Mutable
	p.checkKind(r)
	p.parseSection(r)
}

func (p *parser) checkKind(r *draft) {
	if !slices.Contains(r.kind.Scopes, r.Scope) {
		r.document.fault(r.section.line, r.section.at, "cannot be in scope %s; %s can be in scope %s", r.Scope, r.Kind, scopes(r.kind.Scopes))
	}
	official, isOfficial := strings.CutPrefix(r.Name, officialDomain+"/")
	if isOfficial && official != r.Kind && slices.Contains(p.kindFields(), official) {
		r.document.fault(r.section.line, r.section.at, "is not what %s means; use the field %s, or another name", r.Name, official)
	}
}

func scopes(all []Scope) string {
	names := make([]string, len(all))
	for i, scope := range all {
		names[i] = string(scope)
	}
	return strings.Join(names, " or ")
}

func (p *parser) parseSection(r *draft) {
	if r.section.node.Kind != yaml.MappingNode {
		r.document.fault(r.section.line, r.section.at, "must be a mapping, the configuration of %s, not %s", r.Kind, describe(r.section.node))
		return
	}
	if file, ok := r.section.fields()["configFile"]; ok {
		p.parseConfigFile(r, file)
		return
	}
	text, lines, err := render(r.section.node)
	if err != nil {
		r.document.fault(r.section.line, r.section.at, "cannot be handed on: %v", err)
		return
	}
	config, err := r.kind.Parse(text)
	for _, problem := range SplitErrors(err) {
		r.document.sectionFault(r.section, problem, lines)
	}
	if err == nil {
		r.Backend = config
	}
}

// sectionFault notes a problem that a backend found, with the line and field of the class file.
func (d *document) sectionFault(section entry, err error, lines lineMap) {
	fault := FieldError{File: d.file, Line: section.line, Field: section.at.String(), Problem: err.Error()}
	var field *FieldError
	if errors.As(err, &field) {
		fault.Problem = field.Problem
		fault.Line = lines.original(field.Line, section.line)
		fault.Field = join(fault.Field, field.Field)
	}
	d.problems = append(d.problems, problem{fault.Line, &fault})
}

func join(path, field string) string {
	if field == "" || strings.HasPrefix(field, "[") {
		return path + field
	}
	return path + "." + field
}

func (p *parser) parseConfigFile(r *draft, e entry) {
	d := r.document
	if len(r.section.node.Content) > 2 {
		d.fault(e.line, e.at, "stands beside other fields; the file has to hold all of the configuration")
		return
	}
	name, ok := d.text(e)
	if !ok {
		return
	}
	if !filepath.IsAbs(name) {
		d.fault(e.line, e.at, "is %s; write an absolute path", quote(name))
		return
	}
	data, err := p.read(name)
	if err != nil {
		d.fault(e.line, e.at, "%v", err)
		return
	}
	r.ConfigFile = name
	config, err := r.kind.Parse(data)
	for _, problem := range SplitErrors(err) {
		d.fileFault(e, name, problem)
	}
	if err == nil {
		r.Backend = config
	}
}

func (p *parser) read(name string) ([]byte, error) {
	if p.readFile == nil {
		return nil, fmt.Errorf("cannot read %s here; put the configuration into the class file", clip(name))
	}
	data, err := p.readFile(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", clip(name), err)
	}
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("%s is larger than 256 KiB", clip(name))
	}
	return data, nil
}

// fileFault notes a problem that a backend found in a file of its own.
func (d *document) fileFault(e entry, file string, err error) {
	fault := FieldError{File: file, Problem: err.Error()}
	var field *FieldError
	if errors.As(err, &field) {
		fault = FieldError{file, field.Line, field.Field, field.Problem}
	}
	d.problems = append(d.problems, problem{e.line, &fault})
}

// lineMap leads from lines of a rendered section to those of its class file; both ascend in the first.
type lineMap []struct{ rendered, original int }

// original is the line of the class file; unknown ones are those of the section itself.
func (m lineMap) original(line, section int) int {
	i := sort.Search(len(m), func(i int) bool { return m[i].rendered > line })
	if line <= 0 || i == 0 {
		return section
	}
	return m[i-1].original
}

// render writes a section as a YAML document of its own.
func render(n *yaml.Node) ([]byte, lineMap, error) {
	text, err := yaml.Marshal(n)
	if err != nil {
		return nil, nil, fmt.Errorf("write YAML: %w", err)
	}
	var again yaml.Node
	if err := yaml.Unmarshal(text, &again); err != nil {
		return nil, nil, fmt.Errorf("read YAML: %w", err)
	}
	var lines lineMap
	if len(again.Content) != 1 || !lines.match(again.Content[0], n) {
		return nil, nil, fmt.Errorf("it has values that do not survive being written again; use configFile")
	}
	return text, lines, nil
}

// match walks both trees at once; it is false when they differ.
func (m *lineMap) match(rendered, original *yaml.Node) bool {
	if rendered.Kind != original.Kind || rendered.Value != original.Value || rendered.ShortTag() != original.ShortTag() ||
		len(rendered.Content) != len(original.Content) {
		return false
	}
	// The first word of a line is what it is about; a mapping may begin on an earlier line than its first key.
	if last := len(*m) - 1; len(rendered.Content) == 0 && (last < 0 || (*m)[last].rendered < rendered.Line) {
		*m = append(*m, struct{ rendered, original int }{rendered.Line, original.Line})
	}
	for i := range rendered.Content {
		if !m.match(rendered.Content[i], original.Content[i]) {
			return false
		}
	}
	return true
}
