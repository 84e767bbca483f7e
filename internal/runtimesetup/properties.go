// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimesetup

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/version"
)

// Property is a property of containers that classes set. The runtime sets it if its NRI has the version `NRI` or a later one.
type Property struct{ Name, NRI string }

// nriSince is a version of NRI, with the first version of a runtime that has it.
type nriSince struct{ nri, runtime string }

// nriVersions returns the versions of NRI in a runtime, the oldest first.
func nriVersions(family string) []nriSince {
	switch family {
	case containerd:
		return []nriSince{{"0.6", "1.7.0"}, {"0.8", "1.7.26"}, {"0.10", "2.2.0"}, {"0.11", "2.2.1"}, {"0.12", "2.3.0"}}
	case crio:
		return []nriSince{{"0.6", "1.26.0"}, {"0.8", "1.32.0"}, {"0.10", "1.34.0"}, {"0.11", "1.35.0"}, {"0.12", "1.37.0"}}
	}
	return nil
}

// properties reports the properties of classes that the runtime's NRI cannot set. The plugin refuses containers of these classes.
func (i *inspection) properties() {
	has, err := version.ParseGeneric(i.version)
	versions := nriVersions(i.family())
	for _, p := range i.Properties {
		first := slices.IndexFunc(versions, func(v nriSince) bool { return atLeast(v.nri, p.NRI) })
		switch {
		case err != nil || first < 0:
			i.report(Unknown, "whether %s %s can set %s, which needs NRI %s", i.name, i.version, p.Name, p.NRI)
		case has.LessThan(version.MustParseGeneric(versions[first].runtime)):
			i.report(Problem, "the NRI of %[1]s %[2]s cannot set %[3]s, so containers of its classes are refused; use %[1]s %[4]s or later, which has NRI %[5]s",
				i.name, i.version, p.Name, versions[first].runtime, versions[first].nri)
		}
	}
}
