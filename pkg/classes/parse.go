// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"errors"
	"strings"
)

// What class files must say of themselves.
const (
	APIVersion = Domain + "/v1alpha1"
	FileKind   = "QOSClassConfig"
)

// File is a class file.
type File struct {
	Name string
	Data []byte
}

// ResourceConfig is one resource of the class files.
type ResourceConfig struct {
	Resource
	// Kind is the Field of the resource's Kind.
	Kind    string
	Backend BackendConfig
	// File and Line where the resource is defined.
	File string
	Line int
	// ConfigFile is the file that the backend's configuration was read from; empty when it is in the class file.
	ConfigFile string
}

// Config is what all class files say together.
type Config struct {
	Resources []ResourceConfig
}

// Parse reads class files, strictly. readFile gets the paths of configFile fields. The error joins all problems of
// all files, each a *FieldError; of a file with more than a hundred it has the first. Files without content have no
// resources.
func Parse(files []File, kinds []Kind, readFile func(path string) ([]byte, error)) (*Config, error) {
	p := parser{kinds: kinds, readFile: readFile}
	var documents []*document
	for _, file := range files {
		d := &document{file: file.Name}
		documents = append(documents, d)
		if top := d.load(file.Data); top != nil {
			p.readTop(d, entry{top, top.Line, nil})
		}
	}
	p.crossCheck()
	var errs []error
	for _, d := range documents {
		errs = append(errs, d.errs()...)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return p.config(), nil
}

// parser gathers the resources of all files.
type parser struct {
	kinds     []Kind
	readFile  func(path string) ([]byte, error)
	resources []*draft
}

// draft is a resource while it is read, with the places of its parts.
type draft struct {
	ResourceConfig
	document *document
	kind     *Kind
	// name, defaultClass, section: what was written; their node is nil when nothing was.
	name, defaultClass, section entry
	// classes are the places of Classes; indexes are theirs by name.
	classes []entry
	indexes map[string]int
}

func (p *parser) config() *Config {
	config := &Config{}
	for _, r := range p.resources {
		config.Resources = append(config.Resources, r.ResourceConfig)
	}
	return config
}

func (p *parser) readTop(d *document, top entry) {
	if !d.isOurs(top) {
		return
	}
	resources, ok := d.mapping(top, []string{"apiVersion", "kind", "resources"})["resources"]
	if !ok {
		return
	}
	for _, e := range d.elements(resources) {
		p.readResource(d, e)
	}
}

// isOurs notes what is wrong with apiVersion and kind. It is false for a file of another kind, of whose fields
// nothing can be said.
func (d *document) isOurs(top entry) bool {
	ours := true
	fields := top.fields()
	if fields == nil {
		return true
	}
	for _, must := range [][2]string{{"apiVersion", APIVersion}, {"kind", FileKind}} {
		name, want := must[0], must[1]
		e, ok := fields[name]
		if !ok {
			d.fault(top.line, top.at.field(name), "is missing; write %s: %s", name, want)
			continue
		}
		if value, ok := d.text(e); ok && value != want {
			d.fault(e.line, e.at, "is %s; only %s is known", quote(value), want)
			ours = false
		}
	}
	return ours
}

func (p *parser) kindFields() []string {
	fields := make([]string, len(p.kinds))
	for i, kind := range p.kinds {
		fields[i] = kind.Field
	}
	return fields
}

func (p *parser) backends() string { return strings.Join(p.kindFields(), ", ") }
