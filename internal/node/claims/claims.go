// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package claims gives volumes the classes of their PersistentVolumeClaims. No package of the node's core imports it.
package claims

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Claims has the classes that PersistentVolumeClaims request for volumes of this node.
type Claims struct {
	// Limits has the limits of each class.
	Limits map[string]qos.VolumeLimits
	// Volumes has the volumes with claims. Each volume occurs at most once.
	Volumes []classes.ClaimedVolume
}

// place stands for the name of a file in errors. Claims come from a NodeQOSResources object, and not from a file.
const place = "NodeQOSResources"

// Resource returns the resource of the classes, or nil if there are no classes. The error joins all problems. Each problem is a
// *classes.FieldError.
func (c Claims) Resource(kinds []classes.Kind) (*classes.ResourceConfig, error) {
	i := slices.IndexFunc(kinds, func(k classes.Kind) bool { return k.Claims != nil })
	if len(c.Limits) == 0 {
		return nil, nil //nolint:nilnil // without classes, there is no resource
	}
	if i < 0 {
		return nil, errors.New("no kind of class has limits of volumes")
	}

	kind := kinds[i]
	config, err := kind.Claims.Config(c.Limits)
	problems := classes.SplitErrors(err)
	resource := classes.Resource{Name: kind.Claims.Resource, Scope: classes.VolumeScope, Mutable: kind.Mutable, FromClaims: true}
	for _, name := range slices.Sorted(maps.Keys(c.Limits)) {
		resource.Classes = append(resource.Classes, classes.Class{Name: name})
		err := classes.ValidateClassName(name)
		if err == nil {
			_, err = classes.ExtendedResource(resource.Name, name)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%.80q cannot be the name of a class: %w", name, err))
		}
	}

	for j, problem := range problems {
		problems[j] = &classes.FieldError{File: place, Problem: problem.Error()}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return &classes.ResourceConfig{Resource: resource, Kind: kind.Field, Backend: config, File: place}, nil
}
