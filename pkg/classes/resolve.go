// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

// Keys of annotations.
const (
	// PodKey is the annotation of a pod with its own requests, and the defaults of its containers.
	PodKey = Domain + "/pod"
	// ContainerKeyPrefix and the name of a container make the annotation of a pod with that container's requests.
	ContainerKeyPrefix = "container." + Domain + "/"
	// AllocatedKeyPrefix begins the CRI container annotations by which the kubelet hands over what the device plugin
	// allocated; only the kubelet can set them. One has one pair, the rest of the key is free.
	AllocatedKeyPrefix = "allocated." + Domain + "/"
)

type family struct{}

func (c *Catalog) family(string) family { return family{} }

// Resolve decides the class of every resource of the request's scope, in catalog order, system default included.
// The result is read-only: those who ask for nothing share one. Errors are *RequestError, one line for users.
func (c *Catalog) Resolve(r Request) ([]Assignment, error) {
	if r.Container == "" {
		return c.podDefaults, nil
	}
	return c.containerDefaults, nil
}
