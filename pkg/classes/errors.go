// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"errors"
	"fmt"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

// These are the reasons to refuse a request or an admission. RequestError wraps each of them except the last two, which
// backends return.
var (
	ErrUnknownResource = errors.New("unknown QoS resource")
	ErrUnknownClass    = errors.New("unknown QoS class")
	ErrClassFull       = errors.New("QoS class is full")
	ErrUnavailable     = errors.New("QoS resource is unavailable")
	ErrContradiction   = errors.New("contradicting QoS requests")
	ErrBadRequest      = errors.New("malformed QoS request")
	ErrRuntimeHandler  = errors.New("the pod's runtime handler has no QoS classes")
	ErrNoBlockDevice   = errors.New("the volume has no block device")
	ErrSharedDisk      = errors.New("the disk of the volume is shared")
)

// ErrAllocated is an ErrContradiction: an annotation requests another class than the one that the kubelet allocated.
var ErrAllocated = fmt.Errorf("%w: the kubelet allocated another class", ErrContradiction)

// refusalReason is a reason and the word that names it in events and metrics.
type refusalReason struct {
	is   error
	word string
}

func refusalReasons() []refusalReason {
	return []refusalReason{
		{ErrClassFull, "ClassFull"},
		{ErrUnknownClass, "UnknownClass"},
		{ErrUnknownResource, "UnknownResource"},
		{ErrUnavailable, "Unavailable"},
		{ErrContradiction, "Contradiction"},
		{ErrBadRequest, "BadRequest"},
		{ErrRuntimeHandler, "RuntimeHandler"},
		{ErrNoBlockDevice, "NoBlockDevice"},
		{ErrSharedDisk, "SharedDisk"},
	}
}

// RefusalReason returns the reason of a refusal as a word in CamelCase, for events and metrics. For other errors it
// returns "".
func RefusalReason(err error) string {
	for _, reason := range refusalReasons() {
		if errors.Is(err, reason.is) {
			return reason.word
		}
	}
	return ""
}

// RefusalReasons returns all words that RefusalReason can return.
func RefusalReasons() (words []string) {
	for _, reason := range refusalReasons() {
		words = append(words, reason.word)
	}
	return words
}

// RequestError is the error for a request or an admission that is refused. Its text is one line for users.
type RequestError struct {
	Holder Holder
	// Assignment is the requested assignment. Fields whose values are unknown are empty.
	Assignment
	// Problem names the class, the resource, the reason and the remedy.
	Problem string
	// Err is the reason, e.g. ErrClassFull.
	Err error
}

func refuse(a Assignment, reason error, format string, args ...any) error {
	return &RequestError{Assignment: a, Problem: fmt.Sprintf(format, args...), Err: reason}
}

// refuseHolder sets the holder of a *RequestError. It returns other errors unchanged.
func refuseHolder(h Holder, err error) error {
	if refused, ok := errors.AsType[*RequestError](err); ok {
		refused.Holder = h
	}
	return err
}

func (e *RequestError) Error() string {
	text := e.Problem
	if holder := e.Holder.String(); holder != "" {
		text = holder + ": " + text
	}
	if e.Key != "" {
		text += " (requested by " + e.requester() + ")"
	}
	return text
}

// requester describes the source of the request in the pod. For an allocation, it names the extended resource of the
// class and not the annotation, because the kubelet added the annotation, and no user has written it.
func (e *RequestError) requester() string {
	switch {
	case !strings.HasPrefix(e.Key, AllocatedKeyPrefix):
		return "annotation " + clipKey(e.Key)
	case strings.Contains(e.Key, cdiResourceEnd):
		return "a ResourceClaim or extended resource of the container"
	}
	extended, err := ExtendedResource(e.Resource, e.Class)
	if err != nil {
		return "the kubelet's annotation " + clipKey(e.Key)
	}
	return "extended resource " + clipKey(extended) + " in the container's resources.limits"
}

func (e *RequestError) Unwrap() error { return e.Err }

func (c *Catalog) unknownResource(a Assignment) error {
	if a.Resource == PodQOSResource {
		return refuse(a, ErrBadRequest, "%s cannot be requested: the Pod QoS class follows from the requests and limits of the pod", PodQOSResource)
	}
	names := make([]string, 0, len(c.offers))
	for _, offer := range c.offers {
		if offer.Unavailable == nil {
			names = append(names, offer.Name)
		}
	}
	return refuse(a, ErrUnknownResource, "resource %s does not exist %s; available: %s%s",
		quote(a.Resource), c.place, list(names), Suggestion(a.Resource, names))
}

func (c *Catalog) unknownClass(o *Offer, a Assignment) error {
	names := o.classNames()
	return refuse(a, ErrUnknownClass, "class %s of %s does not exist %s; available: %s%s",
		quote(a.Class), o.Name, c.place, list(names), Suggestion(a.Class, names))
}

func podScopeOnly(a Assignment) error {
	return refuse(a, ErrBadRequest, "%s is for pods, not for containers; request it in annotation %s", a.Resource, PodKey)
}

func volumeScopeOnly(a Assignment) error {
	return refuse(a, ErrBadRequest, "%s is for volumes; request it in annotation %sCONTAINER as PATH=CLASS", a.Resource, VolumeKeyPrefix)
}

func twoClassesOf(a Assignment, first string) error {
	return refuse(a, ErrContradiction, "%s has two classes, %s and %s; keep one of them", clip(a.Resource), quote(first), quote(a.Class))
}

// check returns an error if the class of the assignment `a` cannot be assigned. `o` is the offer of its resource. The system
// default can always be assigned, even if the resource is unavailable.
func (c *Catalog) check(o *Offer, a Assignment) error {
	if a.Class == SystemDefault {
		return nil
	}
	if o.Unavailable != nil {
		return refuse(a, ErrUnavailable, "class %s of %s is unavailable %s: %s", quote(a.Class), o.Name, c.place, o.Unavailable.Message)
	}
	if _, ok := o.Class(a.Class); !ok {
		return c.unknownClass(o, a)
	}
	return nil
}

// checkFor works like `check`. It also returns an error if pods of the holder's runtime handler cannot have classes of the resource.
func (c *Catalog) checkFor(h *Holder, o *Offer, a Assignment) error {
	if a.Class != SystemDefault && !o.Serves(h.RuntimeHandler) {
		return refuse(a, ErrRuntimeHandler, "class %s of %s is not for pods of runtime handler %s; the resource's runtimeHandlers are: %s",
			quote(a.Class), o.Name, quote(h.RuntimeHandler), list(o.RuntimeHandlers))
	}
	return c.check(o, a)
}

func (r *Resource) classNames() []string {
	names := make([]string, 0, len(r.Classes))
	for _, class := range r.Classes {
		names = append(names, class.Name)
	}
	return names
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return printable.List(names, 50)
}

// maxEcho is the maximum size, in bytes, of a text from users that an error repeats. A class name can have 63 bytes.
const maxEcho = 64

// clip makes text from users short and printable, so that it fits into an error of one line.
func clip(text string) string { return printable.Text(text, maxEcho) }

// clipKey clips an annotation key. It clips the part before the first "/" and the part after it separately.
func clipKey(key string) string {
	prefix, rest, found := strings.Cut(key, "/")
	if !found {
		return clip(key)
	}
	return clip(prefix) + "/" + clip(rest)
}

func quote(text string) string { return `"` + clip(text) + `"` }
