// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// readBackend finds the one field of a resource that configures its backend, and reads it.
func (p *parser) readBackend(r *draft, fields map[string]*Field) {
	var found []string
	for i := range p.kinds {
		kind := &p.kinds[i]
		if section := fields[kind.Field]; section != nil {
			found = append(found, kind.Field)
			r.kind, r.Kind, r.section = kind, kind.Field, section
		}
	}

	switch len(found) {
	case 0:
		r.field.Report("has no backend; add one of the fields %s", strings.Join(p.kindFields(), ", "))
	case 1:
		r.Mutable = r.kind.Mutable
		p.checkKind(r)
		p.readSection(r)
	default:
		r.section.Report("is one backend too many: the resource has %s; make it two resources", strings.Join(found, " and "))
		r.kind = nil
	}
}

func (p *parser) checkKind(r *draft) {
	if !slices.Contains(r.kind.Scopes, r.Scope) {
		scopes := strings.Trim(strings.ReplaceAll(fmt.Sprint(r.kind.Scopes), " ", " or "), "[]")
		r.section.Report("cannot be in scope %s; %s can be in scope %s", r.Scope, r.Kind, scopes)
	}
	official, isOfficial := strings.CutPrefix(r.Name, officialDomain+"/")
	if isOfficial && official != r.Kind && slices.Contains(p.kindFields(), official) {
		r.section.Report("is not what %s means; use the field %s, or another name", r.Name, official)
	}
}

func (p *parser) readSection(r *draft) {
	if !r.section.isMapping() {
		r.section.Report("must be a mapping, the configuration of %s, not %s", r.Kind, r.section.describe())
		return
	}
	if file := r.section.child("configFile"); file != nil {
		p.readConfigFile(r, file)
		return
	}

	problems := &r.field.document.problems
	before := len(*problems)
	if config := r.kind.Parse(r.section); len(*problems) == before {
		r.Backend = config
	}
}

// readConfigFile reads the configuration of a backend from the file that a configFile field names.
func (p *parser) readConfigFile(r *draft, f *Field) {
	if len(r.section.children) > 1 {
		f.Report("stands beside other fields; the file has to hold all of the configuration")
		return
	}
	name, ok := f.Text()
	if !ok {
		return
	}
	if !filepath.IsAbs(name) {
		f.Report("is %s; write an absolute path", quote(name))
		return
	}
	data, err := p.read(name)
	if err != nil {
		f.Report("%v", err)
		return
	}

	r.ConfigFile = name
	r.Backend, err = ParseSection(File{name, data}, r.kind.Parse)
	if err != nil {
		p.configFileErrs = append(p.configFileErrs, err)
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
	if len(data) > MaxFileSize {
		return nil, fmt.Errorf("%s is larger than 256 KiB", clip(name))
	}
	return data, nil
}
