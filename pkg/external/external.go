// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package external is the kind of resources whose classes another program enforces, e.g. a CNI plugin or a vendor's agent. The plugin
// counts, advertises, assigns and reports these classes like all others, and changes nothing on the machine.
package external

import (
	"context"
	"strconv"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Kind returns the kind that class files configure with "external: {}".
func Kind() classes.Kind {
	return classes.Kind{
		Field:   "external",
		Scopes:  []classes.Scope{classes.ContainerScope, classes.PodScope},
		Mutable: true, AnyClass: true, AnyHandler: true,
		Parse: classes.InAnyScope(parse),
		New:   func(string, classes.Scope) classes.Backend { return backend{} },
	}
}

// config has the ID of the user that runs the enforcing program. It is nil if only root may run it. The names of the
// classes are in the list `classes` of the resource.
type config struct{ enforcer *uint32 }

func parse(section *classes.Field) classes.BackendConfig {
	field := section.Fields("enforcerUser")["enforcerUser"]
	if field == nil {
		return config{}
	}
	user, err := strconv.ParseUint(field.Scalar(), 10, 32)
	if err != nil {
		field.Report("is not a user ID; write the number of the user that runs the program, e.g. 4242")
	}
	return config{new(uint32(user))}
}

// ClassNames implements classes.BackendConfig.
func (config) ClassNames() []string { return nil }

// EnforcerUser implements classes.External.
func (c config) EnforcerUser() (user uint32, named bool) {
	if c.enforcer == nil {
		return 0, false
	}
	return *c.enforcer, true
}

// backend implements classes.Backend. It has no state, so every class is always in force.
type backend struct{}

func (backend) Check(context.Context, classes.BackendConfig) error     { return nil }
func (backend) Apply(context.Context, classes.BackendConfig) error     { return nil }
func (backend) Repair(context.Context) (classes.Drift, error)          { return classes.Drift{}, nil }
func (backend) Withdraw(context.Context) error                         { return nil }
func (backend) Release(context.Context, func(class string) bool) error { return nil }

func (backend) Adjust(classes.Holder, string, string) (classes.Adjustment, error) { return nil, nil } //nolint:nilnil // sets nothing

func (backend) Enforce(context.Context, classes.Holder, string, string) error { return nil }

// Observe implements classes.Backend. The kernel does not show such a class, so Observe returns the desired one.
func (backend) Observe(_ context.Context, _ classes.Holder, want string) (classes.Observation, error) {
	return classes.Observation{Class: want, Known: true}, nil
}

func (backend) Status() classes.BackendStatus { return classes.BackendStatus{} }
