// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"errors"
	"slices"
	"strings"
)

// level is the precedence of a request. The first level has the highest precedence.
type level int

const (
	ownLevel       level = iota // ContainerKeyPrefix
	allocatedLevel              // AllocatedKeyPrefix
	criLevel                    // family.cri
	familyLevel                 // podKeys.container
	podLevel                    // PodKey
	familyPodLevel              // podKeys.pod
	levels
)

func (l level) source() Source {
	switch l {
	case allocatedLevel:
		return SourceAllocated
	case podLevel, familyPodLevel:
		return SourcePod
	}
	return SourceContainer
}

// ask is one request for a class. If `key` is empty, there is no request.
type ask struct{ class, key string }

type asks [levels]ask

// resolver collects the requests of one holder.
type resolver struct {
	catalog *Catalog
	holder  *Holder
	// asks has one element for each offer of the catalog, in the same order. It is nil until the first request, so
	// that a container without requests costs no allocation.
	asks []asks
}

// Resolve decides the class of every resource in the holder's scope. The result has one assignment for each of these
// resources, in the order of the catalog. Callers must not change the result, because all holders that request nothing
// share one slice. Every error is a *RequestError with one line for users.
//
// The class of a resource comes from the first of these sources that has one:
//
//  1. the annotation for the container (ContainerKeyPrefix)
//  2. the kubelet's allocation (AllocatedKeyPrefix)
//  3. the annotation io.kubernetes.cri.*-class
//  4. the KEP's or the runtime's pod annotation for the container
//  5. PodKey
//  6. the KEP's or the runtime's annotation for the whole pod
//  7. the first of the resource's rules that matches
//  8. the resource's default
//
// A request for the empty class requests the system default. If the kubelet has allocated a class, and an annotation
// for the container requests another one, Resolve returns an error.
func (c *Catalog) Resolve(h Holder) ([]Assignment, error) {
	s := resolver{catalog: c, holder: &h}
	assignments, err := s.resolve()
	if err != nil {
		return nil, refuseHolder(h, err)
	}
	return assignments, nil
}

// ResolveAll returns the holder with its classes, as Resolve does. If the holder is a container, it also returns the
// container's volumes with their classes.
func (c *Catalog) ResolveAll(h Holder) ([]Holding, error) {
	assignments, err := c.Resolve(h)
	if err != nil || h.Scope() != ContainerScope {
		return []Holding{{h, assignments}}, err
	}
	volumes, err := c.Volumes(h)
	if err != nil {
		return nil, err
	}

	all := append(make([]Holding, 0, 1+len(volumes)), Holding{h, assignments})
	for _, volume := range volumes {
		if assignments, err = c.Resolve(volume); err != nil {
			return nil, err
		}
		all = append(all, Holding{volume, assignments})
	}
	return all, nil
}

func (s *resolver) resolve() ([]Assignment, error) {
	if s.holder.Volume != "" {
		return s.catalog.resolveVolume(s.holder)
	}
	if s.holder.Container == "" {
		if err := s.readPairs(podLevel, s.holder.PodAnnotations, PodKey); err != nil {
			return nil, err
		}
		return s.decide(PodScope)
	}

	if err := s.readPod(); err != nil {
		return nil, err
	}
	if err := s.readContainer(); err != nil {
		return nil, err
	}
	return s.decide(ContainerScope)
}

func (s *resolver) readPod() error {
	annotations := s.holder.PodAnnotations
	if len(annotations) == 0 {
		return nil
	}

	// The annotation keys are composed in a buffer on the stack, because annotations[string(key)] then does not allocate.
	var buffer [160]byte
	key := append(append(buffer[:0], ContainerKeyPrefix...), s.holder.Container...)
	if _, ok := annotations[string(key)]; ok {
		if err := s.readPairs(ownLevel, annotations, string(key)); err != nil {
			return err
		}
	}
	if err := s.readPairs(podLevel, annotations, PodKey); err != nil {
		return err
	}

	for i := range s.catalog.families {
		f := &s.catalog.families[i]
		// The KEP's annotations are meant for every implementation, so an unknown resource in them is an error. A runtime's
		// annotation for an unknown resource is ignored, because the runtime itself may use it.
		if err := s.readFamily(f, &f.kep, buffer[:0]); err != nil {
			return err
		}
		if f.offer >= 0 {
			if err := s.readFamily(f, &f.runtime, buffer[:0]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *resolver) readFamily(f *family, keys *podKeys, buffer []byte) error {
	annotations := s.holder.PodAnnotations
	key := append(append(buffer, keys.container...), s.holder.Container...)
	if class, ok := annotations[string(key)]; ok {
		if err := s.addClass(familyLevel, f, string(key), class); err != nil {
			return err
		}
	}
	if class, ok := annotations[keys.pod]; ok {
		return s.addClass(familyPodLevel, f, keys.pod, class)
	}
	return nil
}

func (s *resolver) addClass(l level, f *family, key, class string) error {
	if f.offer < 0 {
		return s.catalog.unknownResource(Assignment{Resource: f.resource, Class: class, Key: key})
	}
	s.add(l, f.offer, key, class)
	return nil
}

// readContainer reads the container annotations that only the kubelet can set. It skips a key that is also in the pod's
// annotations. A user may have set such a key, because some runtimes copy the annotations of a pod to its containers.
func (s *resolver) readContainer() error {
	annotations := s.holder.ContainerAnnotations
	if len(annotations) == 0 {
		return nil
	}

	var allocated []string
	for key := range annotations {
		if strings.HasPrefix(key, AllocatedKeyPrefix) && !s.isOfPod(key) {
			allocated = append(allocated, key)
		}
	}
	slices.Sort(allocated) // if there are several problems, always report the same one
	for _, key := range allocated {
		if err := s.readPairs(allocatedLevel, annotations, key); err != nil {
			return err
		}
	}

	for i := range s.catalog.families {
		f := &s.catalog.families[i]
		if class, ok := annotations[f.cri]; ok && f.offer >= 0 && !s.isOfPod(f.cri) {
			s.add(criLevel, f.offer, f.cri, class)
		}
	}
	return nil
}

func (s *resolver) isOfPod(key string) bool {
	_, ok := s.holder.PodAnnotations[key]
	return ok
}

func (s *resolver) readPairs(l level, annotations map[string]string, key string) error {
	err := eachPair(annotations[key], func(resource, class string) error {
		return s.addPair(l, Assignment{Resource: resource, Class: class, Key: key})
	})
	if refused, ok := errors.AsType[*RequestError](err); ok {
		refused.Key = key
	}
	return err
}

func (s *resolver) addPair(l level, a Assignment) error {
	i, ok := s.catalog.index[a.Resource]
	switch {
	case !ok:
		return s.catalog.unknownResource(a)
	case s.catalog.offers[i].Scope == VolumeScope:
		return volumeScopeOnly(a)
	case l == ownLevel && s.catalog.offers[i].Scope == PodScope:
		return podScopeOnly(a)
	case len(s.asks) > 0 && s.asks[i][l].key != "" && s.asks[i][l].class != a.Class:
		return twoClassesOf(a, s.asks[i][l].class)
	}
	s.add(l, i, a.Key, a.Class)
	return nil
}

// add records a request for an offer. If the offer already has a request of the same level, the earlier request stays.
// The KEP's annotations therefore win over the runtimes' annotations, which are read later.
func (s *resolver) add(l level, offer int, key, class string) {
	if s.asks == nil {
		s.asks = make([]asks, len(s.catalog.offers))
	}
	if first := &s.asks[offer][l]; first.key == "" {
		*first = ask{class, key}
	}
}

func (s *resolver) decide(scope Scope) ([]Assignment, error) {
	defaults := s.catalog.defaultsOf(s.holder, scope)
	if s.asks == nil {
		return defaults, nil
	}

	decided := slices.Clone(defaults)
	next := 0
	for i := range s.catalog.offers {
		offer, requests := &s.catalog.offers[i], &s.asks[i]
		if offer.Scope == VolumeScope {
			continue
		}
		if offer.Scope != scope {
			if err := checkAllocatedPod(offer, requests); err != nil {
				return nil, err
			}
			continue
		}
		if err := s.decideOne(offer, requests, &decided[next]); err != nil {
			return nil, err
		}
		next++
	}
	return decided, nil
}

// decideOne sets `decided` to the requested class of one resource. If nothing is requested, it leaves the default in `decided`.
func (s *resolver) decideOne(offer *Offer, requests *asks, decided *Assignment) error {
	// Only an annotation for this container can contradict the container's allocation. An annotation for the whole pod
	// is just a default for its containers.
	own := requests[ownLevel]
	if own.key == "" {
		own = requests[familyLevel]
	}
	if err := checkAllocated(offer, own, requests[allocatedLevel]); err != nil {
		return err
	}

	for l, request := range requests {
		if request.key != "" {
			*decided = Assignment{offer.Name, request.class, level(l).source(), request.key}
			return s.catalog.checkFor(s.holder, offer, *decided)
		}
	}
	return nil
}

// checkAllocatedPod checks the requests of a container to which the kubelet allocated a class of a pod-scope
// resource. The class of a pod is set before its containers exist, so the allocation alone is not enough. The pod's
// annotation must request the same class.
func checkAllocatedPod(offer *Offer, requests *asks) error {
	allocated, pod := requests[allocatedLevel], requests[podLevel]
	if allocated.key != "" && pod.key == "" {
		return podScopeOnly(Assignment{Resource: offer.Name, Class: allocated.class, Key: allocated.key})
	}
	return checkAllocated(offer, pod, allocated)
}

// checkAllocated refuses a request for a class that differs from the class that the kubelet allocated.
func checkAllocated(offer *Offer, asked, allocated ask) error {
	if asked.key == "" || allocated.key == "" || asked.class == allocated.class {
		return nil
	}
	return refuse(Assignment{Resource: offer.Name, Class: asked.class, Key: asked.key}, ErrAllocated,
		"class %s of %s contradicts the allocated class %s; request the same class in the annotation and in resources.limits",
		quote(asked.class), offer.Name, quote(allocated.class))
}
