// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
)

// Owners maps each subject that occupies a slot of a class to the number of its holders and reservations.
type Owners map[qos.Subject]int

// CheckRoom returns a *RequestError if a holder cannot have an assignment because the class does not exist or has no free slot. The
// function `of` returns the owners of a class of the resource. CheckRoom never refuses a class that the holder already has, even if
// the catalog has changed.
func (c *Catalog) CheckRoom(h Holder, a Assignment, of func(class string) Owners) error {
	return refuseHolder(h, c.checkRoom(h.Subject(), a, of))
}

func (c *Catalog) checkRoom(owner qos.Subject, a Assignment, of func(class string) Owners) error {
	owners := of(a.Class)
	if a.Class == SystemDefault || owners[owner] > 0 {
		return nil
	}

	offer, ok := c.Lookup(a.Resource)
	if !ok {
		return c.unknownResource(a)
	}
	class, ok := offer.Class(a.Class)
	switch {
	case !ok:
		return c.unknownClass(offer, a)
	case class.Capacity == 0 || uint64(len(owners)) < class.Capacity:
		return nil
	}
	// Users read this error. It does not name the holders of the class, because these may be pods of other users.
	return refuse(Assignment{Resource: a.Resource, Class: a.Class}, ErrClassFull, "class %s of %s is full: %d of %d in use%s; available: %s",
		quote(a.Class), clip(a.Resource), len(owners), class.Capacity, ofThePod(owner, owners), list(withRoom(offer, of)))
}

// ofThePod describes how many slots the pod of an owner occupies itself. It returns "" if the pod occupies none.
func ofThePod(owner qos.Subject, owners Owners) string {
	own := 0
	for other := range owners {
		if other.PodUID == owner.PodUID {
			own++
		}
	}

	switch own {
	case 0:
		return ""
	case len(owners):
		return ", all by this pod itself, which requests more"
	}
	return fmt.Sprintf(", %d of them by this pod itself", own)
}

// withRoom returns the classes of a resource that have a free slot.
func withRoom(offer *Offer, of func(class string) Owners) []string {
	var names []string
	for _, class := range offer.Classes {
		used := uint64(len(of(class.Name)))
		switch {
		case class.Capacity == 0:
			names = append(names, class.Name)
		case used < class.Capacity:
			names = append(names, fmt.Sprintf("%s (%d of %d free)", class.Name, class.Capacity-used, class.Capacity))
		}
	}
	return names
}
