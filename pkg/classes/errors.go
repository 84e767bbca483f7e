// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"errors"
	"fmt"
	"strings"
)

// Why a request or an admission is refused. RequestError and CapacityError wrap them.
var (
	ErrUnknownResource = errors.New("unknown QoS resource")
	ErrUnknownClass    = errors.New("unknown QoS class")
	ErrClassFull       = errors.New("QoS class is full")
	ErrUnavailable     = errors.New("QoS resource is unavailable")
	ErrContradiction   = errors.New("contradicting QoS requests")
	ErrBadRequest      = errors.New("malformed QoS request")
	ErrUnknownHolder   = errors.New("nothing known by that ID")
)

// RequestError refuses what a pod or container asked for, in one line.
type RequestError struct {
	PodNamespace, PodName string
	// Container is empty in pod scope.
	Container string
	// Resource and Class that were asked for, as far as they are known.
	Resource, Class string
	// Key of the annotation that asked; empty when none did.
	Key string
	// Problem names class, resource, reason and remedy.
	Problem string
	// Err is one of the sentinels.
	Err error
}

func (e *RequestError) Error() string {
	text := subject(e.PodNamespace, e.PodName, e.Container) + e.Problem
	if e.Key != "" {
		text += " (asked by annotation " + clipKey(e.Key) + ")"
	}
	return text
}

// Unwrap returns the sentinel.
func (e *RequestError) Unwrap() error { return e.Err }

// CapacityError refuses an assignment to a class that has no free slot. It is ErrClassFull.
type CapacityError struct {
	PodNamespace, PodName string
	// Container is empty in pod scope.
	Container       string
	Resource, Class string
	Capacity        uint64
	// InUse may exceed Capacity: what ran already when the capacity was lowered is not evicted.
	InUse int
	// Available are the classes of the resource that have room, the bounded ones with how much. Who has the class is not
	// told: the error reaches users, and the pods of others are not theirs to know.
	Available []string
}

func (e *CapacityError) Error() string {
	text := fmt.Sprintf("%sclass %s of %s is full: %d of %d in use", subject(e.PodNamespace, e.PodName, e.Container),
		quote(e.Class), clip(e.Resource), e.InUse, e.Capacity)
	return text + "; available: " + list(e.Available)
}

// Unwrap returns ErrClassFull.
func (e *CapacityError) Unwrap() error { return ErrClassFull }

// subject names a pod, or a container in it, at the beginning of an error. What has no name gets no subject.
func subject(namespace, pod, container string) string {
	var text string
	if pod != "" {
		text = "pod " + clip(namespace) + "/" + clip(pod) + " "
	}
	if container != "" {
		text += "container " + clip(container) + " "
	}
	if text == "" {
		return ""
	}
	return text[:len(text)-1] + ": "
}

// clipKey keeps an annotation's prefix, which is ours, and clips the rest, which is not.
func clipKey(key string) string {
	prefix, rest, found := strings.Cut(key, "/")
	if !found {
		return clip(key)
	}
	return clip(prefix) + "/" + clip(rest)
}
