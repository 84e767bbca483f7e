// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"path"
	"strings"
)

// MaxVolumes is the maximum number of volumes for which an annotation, or the claims of a pod, can request classes. The effort to enforce
// the classes of a pod grows with the square of this number.
const MaxVolumes = 32

type volumeRequest struct{ path, class string }

// Volumes returns those volumes of a container for which the pod requests classes. Errors are *RequestError.
func Volumes(container Holder) ([]Holder, error) {
	requests, err := volumeRequests(container)
	if err != nil {
		return nil, refuseHolder(container, err)
	}

	var volumes []Holder
	for _, request := range requests {
		volumes = append(volumes, volumeOf(container, request.path))
	}
	return volumes, nil
}

// volumeOf returns the volume that a container has at a path.
func volumeOf(container Holder, path string) Holder {
	volume := container
	volume.ID, volume.ContainerID = VolumeID(container.ID, path), container.ID
	volume.Volume, volume.CgroupsPath = path, container.PodCgroupsPath
	return volume
}

// VolumeClass returns the class that the pod's annotation requests for a volume. It is empty if there is no request.
func VolumeClass(volume Holder) string {
	requests, _ := volumeRequests(volume)
	for _, request := range requests {
		if request.path == volume.Volume {
			return request.class
		}
	}
	return SystemDefault
}

// VolumeID returns the ID of a volume of a container. It is unique on the node.
func VolumeID(containerID, volume string) string { return containerID + ":" + volume }

// volumeRequests reads "path=class" pairs, separated by commas. It leaves out pairs that request the system default.
func volumeRequests(container Holder) (requests []volumeRequest, err error) {
	if len(container.PodAnnotations) == 0 {
		return nil, nil
	}
	key := VolumeKeyPrefix + container.Container
	value := strings.TrimSpace(container.PodAnnotations[key])
	switch {
	case value == "":
		return nil, nil
	case len(value) > maxPairsLength:
		return nil, refuse(Assignment{Key: key}, ErrBadRequest, "the request is longer than %d bytes", maxPairsLength)
	}

	seen := map[string]string{}
	for pair := range strings.SplitSeq(value, ",") {
		pair = strings.TrimSpace(pair)
		name, class, found := strings.Cut(pair, "=")
		if !found || !path.IsAbs(name) || strings.ContainsAny(class, "= \t\r\n") {
			return nil, refuse(Assignment{Key: key}, ErrBadRequest, "the request has %s, which is not of the form /path=class", quote(pair))
		}

		name = path.Clean(name)
		first, repeated := seen[name]
		if repeated && first != class {
			return nil, refuse(Assignment{Key: key}, ErrContradiction, "volume %s has two classes, %s and %s; keep one", clip(name), quote(first), quote(class))
		}
		if len(seen) == MaxVolumes && !repeated {
			return nil, refuse(Assignment{Key: key}, ErrBadRequest, "the request has more than %d volumes", MaxVolumes)
		}
		if seen[name] = class; !repeated && class != SystemDefault {
			requests = append(requests, volumeRequest{name, class})
		}
	}
	return requests, nil
}

// resolveVolume returns up to two assignments: first the class that the pod requests for the volume, then the class
// that the volume's claim requests.
func (c *Catalog) resolveVolume(volume *Holder) (assignments []Assignment, _ error) {
	if class := VolumeClass(*volume); class != SystemDefault {
		requested, err := c.requestedFor(volume, class)
		if err != nil {
			return nil, err
		}
		assignments = append(assignments, requested)
	}
	if claimed, ok := c.ClaimOf(volume.Subject()); ok {
		assignments = append(assignments, claimed)
	}
	return assignments, nil
}

// requestedFor returns the assignment for a class that the pod requests for a volume. The class files define at most
// one resource of volume scope. The class belongs to this resource.
func (c *Catalog) requestedFor(volume *Holder, class string) (Assignment, error) {
	a := Assignment{Class: class, Source: SourceContainer, Key: VolumeKeyPrefix + volume.Container}
	for i := range c.offers {
		if offer := &c.offers[i]; offer.Scope == VolumeScope && !offer.FromClaims {
			a.Resource = offer.Name
			return a, c.checkFor(volume, offer, a)
		}
	}
	return a, refuse(a, ErrUnknownResource, "class %s cannot be enforced: there is no resource of volume scope %s", quote(a.Class), c.place)
}
