// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"slices"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
)

// ClaimedClasses describes the resource whose classes PersistentVolumeClaims request. Its classes have only limits.
type ClaimedClasses struct {
	// Resource is the name of the resource. Class files cannot define it.
	Resource string
	// Config returns a configuration of the backend. It has one class for each element of `limits`, whose keys are the
	// names of the classes. The error joins all problems.
	Config func(limits map[string]qos.VolumeLimits) (BackendConfig, error)
}

// ClaimedVolume is a volume of a container. The volume's PersistentVolumeClaim requests a class.
type ClaimedVolume struct {
	qos.Subject
	// Claim is the namespace and name of the claim, e.g. "db/data-0".
	Claim string
	// Class is a class of the resource that has FromClaims.
	Class string
}

// WithClaims returns a copy of the catalog that has the claims of these volumes.
func (c *Catalog) WithClaims(volumes []ClaimedVolume) *Catalog {
	with := *c
	with.claims = map[qos.Subject][]ClaimedVolume{}
	for _, volume := range volumes {
		container := volume.WithoutVolume()
		with.claims[container] = append(with.claims[container], volume)
	}
	return &with
}

// ClaimOf returns the class that the claim of a volume requests. If this class cannot be assigned, `ok` is false.
// ClaimOf returns no error, because a problem with a claim must not prevent the container from starting.
func (c *Catalog) ClaimOf(volume qos.Subject) (a Assignment, ok bool) {
	offer := slices.IndexFunc(c.offers, func(o Offer) bool { return o.FromClaims })
	claims := c.claims[volume.WithoutVolume()]
	i := slices.IndexFunc(claims, func(v ClaimedVolume) bool { return v.Subject == volume })
	if i < 0 || offer < 0 {
		return Assignment{}, false
	}
	a = Assignment{Resource: c.offers[offer].Name, Class: claims[i].Class, Source: SourceClaim, Key: claims[i].Claim}
	return a, c.check(&c.offers[offer], a) == nil
}

// Volumes returns those volumes of a container for which the pod or a claim requests a class. If the request of the pod
// is invalid, Volumes returns the volumes with claims, and the error. Errors are *RequestError.
func (c *Catalog) Volumes(container Holder) ([]Holder, error) {
	volumes, err := Volumes(container)
	for _, claimed := range c.claims[container.Subject()] {
		known := slices.ContainsFunc(volumes, func(v Holder) bool { return v.Volume == claimed.Volume })
		if _, ok := c.ClaimOf(claimed.Subject); ok && !known {
			volumes = append(volumes, volumeOf(container, claimed.Volume))
		}
	}
	return volumes, err
}
