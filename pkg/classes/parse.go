// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import "errors"

// These are the apiVersion and the kind of class files.
const (
	APIVersion = Domain + "/v1alpha1"
	FileKind   = "QOSClassConfig"
)

// File is a class file: its name and its content.
type File struct {
	Name string
	Data []byte
}

// ResourceConfig is one resource that a class file defines.
type ResourceConfig struct {
	Resource
	// Kind is the name of the field that configures the backend (Kind.Field), e.g. "rdt".
	Kind    string
	Backend BackendConfig
	// File and Line say where the resource is defined.
	File string
	Line int
	// ConfigFile is the file from which the backend's configuration was read. It is empty if the configuration is in
	// the class file.
	ConfigFile string
}

// Config is the content of all class files.
type Config struct {
	Resources []ResourceConfig
}

// FileSet is the result of reading a set of class files.
type FileSet struct {
	Files []string
	// Hash identifies the content of the files.
	Hash string
	// Config is the content of the files. If reading the files failed, Config is nil and Err has the reason.
	Config *Config
	Err    error
}

// Parse reads class files, strictly. It calls the function readFile for the files that fields name, such as configFile. The error
// joins the problems of all files. Each problem is a *FieldError. Parse reports at most a hundred problems for each file.
func Parse(files []File, kinds []Kind, readFile func(path string) ([]byte, error)) (*Config, error) {
	p := parser{kinds: kinds}
	documents := make([]*document, 0, len(files))
	for _, file := range files {
		d := &document{file: file.Name, read: readFile}
		documents = append(documents, d)
		p.readTop(d.load(file.Data))
	}
	p.crossCheck()

	var errs []error
	for _, d := range documents {
		errs = append(errs, d.errs()...)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}

	config := &Config{}
	for _, r := range p.resources {
		config.Resources = append(config.Resources, r.ResourceConfig)
	}
	return config, nil
}

// ParseSection reads the configuration of one resource from a separate file. The error joins all problems. Each problem
// is a *FieldError.
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
	resources []*draft
}

type draft struct {
	ResourceConfig
	field *Field
	// name is the resource's field "name". `section` is the field that configures its backend, e.g. "rdt". Both may be nil.
	name, section *Field
	kind          *Kind
	// classes maps the name of each class to the field that defines the class.
	classes map[string]*Field
	// rules has the field with the class of each rule, or nil if the field is missing.
	rules []*Field
}

func (p *parser) readTop(top *Field) {
	switch {
	case top == nil:
		return
	case top.IsNull():
		// An empty file may be a file that another program is about to write. Reading it as "no classes" would remove all classes.
		top.document.report(0, "", "is empty; write apiVersion, kind and resources, or remove the file")
		return
	case top.isMapping() && !isClassFile(top):
		return
	}

	if resources := top.ExactFields("apiVersion", "kind", "resources")["resources"]; resources != nil {
		for _, resource := range resources.elements() {
			p.readResource(resource)
		}
	}
}

// isClassFile checks the fields apiVersion and kind. It returns false for a file of another kind, and the caller then
// does not check the other fields.
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
