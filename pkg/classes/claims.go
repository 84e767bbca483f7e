// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
)

// ClaimResource is a resource of volume scope. Its classes are VolumeAttributesClasses that PersistentVolumeClaims
// name. Class files cannot define this resource.
const ClaimResource = Domain + "/claim-io"

// claimFile stands for the file name in errors about Claims. Claims come from a NodeQOSResources object, and not from a file.
const claimFile = "NodeQOSResources"

// Claims has the classes that PersistentVolumeClaims request for volumes of this node.
type Claims struct {
	// Limits maps each class to its limits. The limits have the names of fields in volumeio of class files, e.g. "maxReadBps".
	Limits map[string]map[string]uint64
	// Volumes has the volumes with claims. A volume occurs once.
	Volumes []ClaimedVolume
}

// ClaimedVolume is a volume of a container. The volume's PersistentVolumeClaim requests a class.
type ClaimedVolume struct {
	qos.Subject
	// Claim is the namespace and name of the claim, e.g. "db/data-0".
	Claim string
	// Class is a class of ClaimResource.
	Class string
}

// Resource returns the configuration of ClaimResource, or nil if there are no classes. The classes are parsed like a class file. The
// error joins all problems. Each problem is a *FieldError.
func (c Claims) Resource(kinds []Kind) (*ResourceConfig, error) {
	if len(c.Limits) == 0 {
		return nil, nil //nolint:nilnil // no classes are no resource
	}

	data, err := json.Marshal(map[string]any{"apiVersion": APIVersion, "kind": FileKind, "resources": []any{map[string]any{
		"name": ClaimResource, "scope": VolumeScope, "volumeio": map[string]any{"classes": c.Limits},
	}}})
	if err != nil {
		return nil, fmt.Errorf("encode the classes of claims: %w", err)
	}
	config, err := Parse([]File{{claimFile, data}}, kinds, nil)
	if err != nil {
		return nil, err
	}
	return &config.Resources[0], nil
}

// FromClaims reports whether the configuration comes from claims, and not from class files.
func (c ResourceConfig) FromClaims() bool { return c.File == claimFile }

// WithClaims returns a copy of the catalog that has the claims of these volumes.
func (c *Catalog) WithClaims(volumes []ClaimedVolume) *Catalog {
	with := *c
	with.claims = map[qos.Subject][]ClaimedVolume{}
	for _, volume := range volumes {
		container := qos.Subject{PodUID: volume.PodUID, Container: volume.Container}
		with.claims[container] = append(with.claims[container], volume)
	}
	return &with
}

// ClaimOf returns the class that the claim of a volume requests. If this class cannot be assigned, ok is false. ClaimOf
// returns no error, because a problem with a claim must not prevent the container from starting.
func (c *Catalog) ClaimOf(volume qos.Subject) (a Assignment, ok bool) {
	offer, offered := c.Lookup(ClaimResource)
	claims := c.claims[qos.Subject{PodUID: volume.PodUID, Container: volume.Container}]
	i := slices.IndexFunc(claims, func(v ClaimedVolume) bool { return v.Subject == volume })
	if i < 0 || !offered {
		return Assignment{}, false
	}
	a = Assignment{Resource: ClaimResource, Class: claims[i].Class, Source: SourceClaim, Key: claims[i].Claim}
	return a, c.check(offer, a) == nil
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
