// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Config is the value of the field "linux" in a class file.
type Config struct {
	names   []string
	classes map[string]class
}

// ClassNames implements classes.BackendConfig.
func (c *Config) ClassNames() []string { return c.names }

// Sets implements classes.Setter.
func (c *Config) Sets() (all []classes.Setting) {
	for _, class := range c.classes {
		for _, p := range class {
			if !slices.Contains(all, p.setting) {
				all = append(all, p.setting)
			}
		}
	}
	slices.SortFunc(all, classes.Setting.Compare)
	return all
}

// ParseConfig reads the field "linux" of a resource in a scope.
func ParseConfig(section *classes.Field, scope classes.Scope) classes.BackendConfig {
	c := &Config{classes: map[string]class{}}
	list := section.ExactFields("classes")["classes"]
	for _, f := range list.Entries() {
		c.names = append(c.names, f.Name)
		c.classes[f.Name] = parseClass(f, scope)
	}
	if len(c.names) == 0 {
		section.Report("has no classes; add one, e.g. classes: {batch: {%s}}", example(scope))
	}
	return c
}

// example returns a property that a class in a scope can have.
func example(scope classes.Scope) string {
	if scope == classes.PodScope {
		return "cpu: {idle: true}"
	}
	return "oomScoreAdj: 500"
}

// parser reads one class.
type parser struct {
	class class
	scope classes.Scope
	// privileged allows properties with which a container can harm the node.
	privileged bool
	// skip is true if a property that is a share of a limit does not apply to containers without this limit.
	skip bool
}

func parseClass(f *classes.Field, scope classes.Scope) class {
	sets := func(field *classes.Field) bool {
		return field.Name != "allowPrivileged" && field.Name != "withoutLimit"
	}
	if f.IsNull() || isMapping(f) && !slices.ContainsFunc(f.Entries(), sets) {
		f.Report("sets nothing; add a property, e.g. %s", example(scope))
		return nil
	}
	fields := f.ExactFields("allowPrivileged", "withoutLimit", "oomScoreAdj", "rlimits", "ioPriority", "scheduler", "memoryPolicy",
		"memory", "cpu", "pids")
	if fields == nil {
		return nil
	}

	p := &parser{scope: scope}
	if scope == classes.PodScope {
		reportForContainers(f, "cpu")
	}
	p.privileged = truth(fields["allowPrivileged"])
	p.skip = oneOf(fields["withoutLimit"], "refuse", "skip") == "skip"
	p.oomScoreAdj(fields["oomScoreAdj"])
	for _, limit := range fields["rlimits"].Entries() {
		p.rlimit(limit)
	}
	p.ioPriority(fields["ioPriority"])
	p.scheduler(fields["scheduler"])
	p.memoryPolicy(fields["memoryPolicy"])
	p.memory(fields["memory"])
	p.cpu(fields["cpu"])
	p.pids(fields["pids"])
	return p.class
}

// reportForContainers reports each field of a class in pod scope except `forPods`, because only a class of containers
// can have the other fields.
func reportForContainers(f *classes.Field, forPods string) {
	for _, field := range f.Entries() {
		if field.Name != forPods {
			field.Report("must be omitted in scope pod: a class of pods sets only cpu.idle; write another resource, in scope container")
		}
	}
}

// section returns the fields of a group of properties, which must not be empty.
func section(f *classes.Field, known ...string) map[string]*classes.Field {
	fields := f.ExactFields(known...)
	if f != nil && isMapping(f) && len(f.Entries()) == 0 {
		f.Report("sets nothing; add one of the fields %s", list(known))
	}
	return fields
}

// set adds a property to the class.
func (p *parser) set(name string, setting classes.Setting, v value) {
	p.class = append(p.class, property{name, setting, v})
}

// needsPrivilege reports a value that only a privileged class may have.
func (p *parser) needsPrivilege(f *classes.Field, why string) {
	if !p.privileged {
		f.Report("%s; to allow that, add allowPrivileged: true to the class", why)
	}
}
