// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"errors"
	"slices"
	"strings"
)

// level is the precedence of a request, the highest first.
type level int

const (
	ownLevel       level = iota // ContainerKeyPrefix
	allocatedLevel              // AllocatedKeyPrefix
	criLevel                    // family.cri
	familyLevel                 // family.container, family.betaContainer
	podLevel                    // PodKey
	familyPodLevel              // family.pod, family.betaPod
	levels
)

func (l level) source() Source {
	switch l {
	case allocatedLevel:
		return SourceAllocated
	case podLevel, familyPodLevel:
		return SourcePod
	default:
		return SourceContainer
	}
}

// ask is one request for a class; without a key there is none.
type ask struct{ class, key string }

// asks of one resource.
type asks [levels]ask

// resolver gathers the asks of one request. The zero number of asks means that nothing was asked, which is what most
// containers do, and costs no memory.
type resolver struct {
	catalog *Catalog
	request *Holder
	// asks are by index of the offer.
	asks []asks
}

// Resolve decides the class of every resource of the request's scope, in catalog order, system default included.
// The result is read-only: those who ask for nothing share one. Errors are *RequestError, one line for users.
//
// Each resource takes the highest of the container's own annotation, the kubelet's allocation, the CRI annotations
// of the runtimes, the container annotations of the KEP and of the runtimes, the pod's annotation, the pod
// annotations of the KEP and of the runtimes, and the resource's default. An empty class is a request for the system
// default. A container's annotation that contradicts its allocation is an error.
func (c *Catalog) Resolve(r Holder) ([]Assignment, error) {
	s := resolver{catalog: c, request: &r}
	if r.Container == "" {
		if err := s.readPairs(podLevel, r.PodAnnotations, PodKey); err != nil {
			return nil, err
		}
		return s.decide(PodScope, c.podDefaults)
	}
	if err := s.readPod(); err != nil {
		return nil, err
	}
	if err := s.readContainer(); err != nil {
		return nil, err
	}
	return s.decide(ContainerScope, c.containerDefaults)
}

func (s *resolver) readPod() error {
	annotations := s.request.PodAnnotations
	if len(annotations) == 0 {
		return nil
	}
	// Keys are put together on the stack: a look-up with string(bytes) does not allocate.
	var buffer [160]byte
	key := append(append(buffer[:0], ContainerKeyPrefix...), s.request.Container...)
	if value, ok := annotations[string(key)]; ok {
		if err := s.addPairs(ownLevel, string(key), value); err != nil {
			return err
		}
	}
	if err := s.readPairs(podLevel, annotations, PodKey); err != nil {
		return err
	}
	for i := range s.catalog.families {
		if err := s.readFamily(&s.catalog.families[i], buffer[:0]); err != nil {
			return err
		}
	}
	return nil
}

// readFamily reads the annotations of others. Those of the KEP are meant for whoever implements it, which is us; the
// runtimes' own may be meant for the runtime when we do not have the resource.
func (s *resolver) readFamily(f *family, buffer []byte) error {
	annotations := s.request.PodAnnotations
	key := append(append(buffer, f.container...), s.request.Container...)
	if class, ok := annotations[string(key)]; ok {
		if err := s.addOfficial(f, familyLevel, string(key), class); err != nil {
			return err
		}
	}
	if class, ok := annotations[f.pod]; ok {
		if err := s.addOfficial(f, familyPodLevel, f.pod, class); err != nil {
			return err
		}
	}
	if f.offer < 0 {
		return nil
	}
	key = append(append(buffer, f.betaContainer...), s.request.Container...)
	if class, ok := annotations[string(key)]; ok {
		s.add(familyLevel, f.offer, string(key), class)
	}
	if class, ok := annotations[f.betaPod]; ok {
		s.add(familyPodLevel, f.offer, f.betaPod, class)
	}
	return nil
}

func (s *resolver) addOfficial(f *family, l level, key, class string) error {
	if f.offer < 0 {
		return s.refuse(f.resource, class, key, s.catalog.unknownResource(f.resource))
	}
	s.add(l, f.offer, key, class)
	return nil
}

// readContainer reads what only the kubelet can say. Some runtimes copy a pod's annotations to its containers, so what the
// pod has too is not taken for the kubelet's word.
func (s *resolver) readContainer() error {
	annotations := s.request.ContainerAnnotations
	if len(annotations) == 0 {
		return nil
	}
	var allocated []string
	for key := range annotations {
		if strings.HasPrefix(key, AllocatedKeyPrefix) && !s.isPods(key) {
			allocated = append(allocated, key)
		}
	}
	// In order, so that of several problems the same one is told each time.
	slices.Sort(allocated)
	for _, key := range allocated {
		if err := s.readPairs(allocatedLevel, annotations, key); err != nil {
			return err
		}
	}
	for i := range s.catalog.families {
		f := &s.catalog.families[i]
		if class, ok := annotations[f.cri]; ok && f.offer >= 0 && !s.isPods(f.cri) {
			s.add(criLevel, f.offer, f.cri, class)
		}
	}
	return nil
}

func (s *resolver) isPods(key string) bool {
	_, copied := s.request.PodAnnotations[key]
	return copied
}

func (s *resolver) readPairs(l level, annotations map[string]string, key string) error {
	value, ok := annotations[key]
	if !ok {
		return nil
	}
	return s.addPairs(l, key, value)
}

func (s *resolver) addPairs(l level, key, value string) error {
	err := eachPair(value, func(resource, class string) error { return s.addPair(l, key, resource, class) })
	var pair *pairError
	if errors.As(err, &pair) {
		return s.refuse("", "", key, refusal{"the request " + pair.problem, pair.reason})
	}
	return err
}

func (s *resolver) addPair(l level, key, resource, class string) error {
	i, ok := s.catalog.index[resource]
	if !ok {
		return s.refuse(resource, class, key, s.catalog.unknownResource(resource))
	}
	if l == ownLevel && s.catalog.offers[i].Scope == PodScope {
		return s.refuse(resource, class, key, podScopeOnly(resource))
	}
	if other := s.get(l, i); other.key != "" && other.class != class {
		return s.refuse(resource, class, key, refusal{twice(resource, other.class, class).Error(), ErrContradiction})
	}
	s.add(l, i, key, class)
	return nil
}

// get is what was asked for before.
func (s *resolver) get(l level, offer int) ask {
	if s.asks == nil {
		return ask{}
	}
	return s.asks[offer][l]
}

// add keeps the first ask of a level: the KEP's annotations come before the runtimes'.
func (s *resolver) add(l level, offer int, key, class string) {
	if s.asks == nil {
		s.asks = make([]asks, len(s.catalog.offers))
	}
	if at := &s.asks[offer][l]; at.key == "" {
		*at = ask{class, key}
	}
}

func (s *resolver) decide(scope Scope, defaults []Assignment) ([]Assignment, error) {
	if s.asks == nil {
		return defaults, nil
	}
	decided := slices.Clone(defaults)
	at := 0
	for i := range s.catalog.offers {
		offer := &s.catalog.offers[i]
		if (offer.Scope == PodScope) != (scope == PodScope) {
			if err := s.checkAllocatedPod(offer, &s.asks[i]); err != nil {
				return nil, err
			}
			continue
		}
		if err := s.decideOne(offer, &s.asks[i], &decided[at]); err != nil {
			return nil, err
		}
		at++
	}
	return decided, nil
}

// decideOne leaves the default in place when nothing was asked.
func (s *resolver) decideOne(offer *Offer, of *asks, decided *Assignment) error {
	if err := s.checkAllocated(offer, of); err != nil {
		return err
	}
	for l := range levels {
		ask := of[l]
		if ask.key == "" {
			continue
		}
		if why, ok := offer.check(ask.class); !ok {
			return s.refuse(offer.Name, ask.class, ask.key, why)
		}
		*decided = Assignment{Resource: offer.Name, Class: ask.class, Source: l.source(), Key: ask.key}
		return nil
	}
	return nil
}

// checkAllocated refuses a container whose own annotation differs from what the kubelet allocated for it. Pod-wide
// annotations are for containers that do not ask for themselves.
func (s *resolver) checkAllocated(offer *Offer, of *asks) error {
	own := of[ownLevel]
	if own.key == "" {
		own = of[familyLevel]
	}
	return s.contradiction(offer, own, of[allocatedLevel])
}

// checkAllocatedPod lets a container carry the extended resource of its pod's class, by which the scheduler counts.
// By itself it asks for nothing: the pod had its class before any of its containers.
func (s *resolver) checkAllocatedPod(offer *Offer, of *asks) error {
	allocated := of[allocatedLevel]
	if allocated.key == "" {
		return nil
	}
	if of[podLevel].key == "" {
		return s.refuse(offer.Name, allocated.class, allocated.key, podScopeOnly(offer.Name))
	}
	return s.contradiction(offer, of[podLevel], allocated)
}

func (s *resolver) contradiction(offer *Offer, asked, allocated ask) error {
	if asked.key == "" || allocated.key == "" || asked.class == allocated.class {
		return nil
	}
	problem := "class " + quote(asked.class) + " of " + offer.Name + " contradicts the allocated class " +
		quote(allocated.class) + "; ask for the same one in the annotation and in resources.limits"
	return s.refuse(offer.Name, asked.class, asked.key, refusal{problem, ErrContradiction})
}

func (s *resolver) refuse(resource, class, key string, why refusal) error {
	return &RequestError{
		PodNamespace: s.request.PodNamespace, PodName: s.request.PodName, Container: s.request.Container,
		Resource: resource, Class: class, Key: key, Problem: why.problem, Err: why.reason,
	}
}
