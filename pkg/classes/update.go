// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

// Update decides what pairs, asked for something that runs, come to: assignments of those resources, without the
// others. Request says of what, its annotations do not matter. Whether a resource is Mutable, and a class has room,
// is not looked at. Errors are *RequestError.
func (c *Catalog) Update(r Request, pairs []Pair) ([]Assignment, error) {
	s := resolver{catalog: c, request: &r}
	assignments := make([]Assignment, 0, len(pairs))
	for _, pair := range pairs {
		if why, ok := c.checkPair(pair, r.Container == ""); !ok {
			return nil, s.refuse(pair.Resource, pair.Class, "", why)
		}
		assignments = append(assignments, Assignment{CanonicalResource(pair.Resource), pair.Class, SourceUpdate, ""})
	}
	return assignments, nil
}

func (c *Catalog) checkPair(pair Pair, ofPod bool) (why refusal, ok bool) {
	offer, ok := c.Lookup(pair.Resource)
	switch {
	case !ok:
		return c.unknownResource(pair.Resource), false
	case ofPod && offer.Scope != PodScope:
		return refusal{offer.Name + " is for containers; name one", ErrBadRequest}, false
	case !ofPod && offer.Scope == PodScope:
		return refusal{offer.Name + " is for pods; leave the container out", ErrBadRequest}, false
	}
	return offer.check(pair.Class)
}
