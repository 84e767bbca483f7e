// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import "errors"

// The apiVersion and kind of class files.
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
	// Kind is the name of the backend's field in the class file (Kind.Field), e.g. "rdt".
	Kind    string
	Backend BackendConfig
	// File and Line where the resource is defined.
	File string
	Line int
	// ConfigFile is the file that the backend's configuration was read from; empty when it is in the class file.
	ConfigFile string
}

// Config is the content of all class files.
type Config struct {
	Resources []ResourceConfig
}

// FileSet is a set of class files that was read.
type FileSet struct {
	Files []string
	// Hash identifies the content of the files.
	Hash string
	// Config is the content of the files; nil if they could not be read, for the reason in Err.
	Config *Config
	Err    error
}

// Parse reads class files, strictly. readFile reads the files that configFile fields name. The error joins the problems of all
// files, each a *FieldError, and at most a hundred for each file.
func Parse(files []File, kinds []Kind, readFile func(path string) ([]byte, error)) (*Config, error) {
	p := parser{kinds: kinds, readFile: readFile}
	documents := make([]*document, 0, len(files))
	for _, file := range files {
		d := &document{file: file.Name}
		documents = append(documents, d)
		p.readTop(d.load(file.Data))
	}
	p.crossCheck()

	var errs []error
	for _, d := range documents {
		errs = append(errs, d.errs()...)
	}
	if errs = append(errs, p.configFileErrs...); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}

	config := &Config{}
	for _, r := range p.resources {
		config.Resources = append(config.Resources, r.ResourceConfig)
	}
	return config, nil
}

// ParseSection reads the configuration of one resource from a file of its own. The error joins all problems, each a
// *FieldError.
func ParseSection(file File, parse func(section *Field) BackendConfig) (BackendConfig, error) {
	d := &document{file: file.Name}
	var config BackendConfig
	if top := d.load(file.Data); top != nil {
		config = parse(top)
	}
	if len(d.problems) > 0 {
		return nil, errors.Join(d.errs()...)
	}
	return config, nil
}

type parser struct {
	kinds     []Kind
	readFile  func(path string) ([]byte, error)
	resources []*draft
	// configFileErrs are the problems in files that configFile fields name.
	configFileErrs []error
}

type draft struct {
	ResourceConfig
	field *Field
	// name and section are nil when the file does not have them.
	name, section *Field
	kind          *Kind
	// classes are the fields that define Classes, by name.
	classes map[string]*Field
}

func (p *parser) readTop(top *Field) {
	switch {
	case top == nil:
		return
	case top.IsNull():
		// The file may be about to be written. Reading it as "no classes" would remove all classes.
		top.document.report(0, "", "is empty; write apiVersion, kind and resources, or remove the file")
		return
	case top.isMapping() && !isClassFile(top):
		return
	}

	if resources := top.exactFields("apiVersion", "kind", "resources")["resources"]; resources != nil {
		for _, resource := range resources.elements() {
			p.readResource(resource)
		}
	}
}

// isClassFile checks apiVersion and kind. It returns false for a file of another kind, whose other fields are not checked.
func isClassFile(top *Field) bool {
	known := true
	for _, required := range [][2]string{{"apiVersion", APIVersion}, {"kind", FileKind}} {
		name, want := required[0], required[1]
		field := top.child(name)
		if field == nil {
			top.reportMissing(name, "is missing; write %s: %s", name, want)
			continue
		}
		if value, ok := field.Text(); ok && value != want {
			field.Report("is %s; only %s is known", quote(value), want)
			known = false
		}
	}
	return known
}

func (p *parser) kindFields() []string {
	fields := make([]string, len(p.kinds))
	for i, kind := range p.kinds {
		fields[i] = kind.Field
	}
	return fields
}
