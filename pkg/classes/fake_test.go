// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

// fakeConfig has the names of the classes of a fake backend.
type fakeConfig []string

func (c fakeConfig) ClassNames() []string { return c }

// fakeKinds have the fields and scopes of the real kinds "rdt", "blockio" and "network".
func fakeKinds() []Kind {
	return []Kind{
		{Field: "rdt", Scopes: []Scope{ContainerScope}, Single: true, Mutable: true, Parse: InAnyScope(parseFake)},
		{Field: "blockio", Scopes: []Scope{ContainerScope, PodScope}, Parse: InAnyScope(parseFake)},
		{Field: "network", Scopes: []Scope{PodScope}, Parse: InAnyScope(parseFake)},
	}
}

// parseFake reads {classes: {name: {...}}}. If a class has the field "bad", parseFake reports a problem of this field.
// If a class has the name "explode", parseFake reports a problem of the whole section.
func parseFake(section *Field) BackendConfig {
	var names fakeConfig
	for _, class := range section.Fields("classes")["classes"].Entries() {
		names = append(names, class.Name)
		if class.Name == "explode" {
			section.Report("exploded")
		}
		for _, field := range class.Entries() {
			if field.Name == "bad" {
				field.Report("is bad")
			}
		}
	}
	return names
}
