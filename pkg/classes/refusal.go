// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"fmt"
	"strings"
)

// refusal is why a class cannot be given, without saying to whom.
type refusal struct {
	problem string
	reason  error
}

func (c *Catalog) unknownResource(name string) refusal {
	names := make([]string, 0, len(c.offers))
	for _, offer := range c.offers {
		names = append(names, offer.Name)
	}
	return refusal{fmt.Sprintf("resource %s does not exist on this node; available: %s", quote(name), list(names)), ErrUnknownResource}
}

func (o *Offer) unknownClass(name string) refusal {
	return refusal{fmt.Sprintf("class %s of %s does not exist on this node; available: %s", quote(name), o.Name, o.classNames()), ErrUnknownClass}
}

func (r *Resource) classNames() string {
	names := make([]string, 0, len(r.Classes))
	for _, class := range r.Classes {
		names = append(names, class.Name)
	}
	return list(names)
}

func (o *Offer) unavailable(class string) refusal {
	return refusal{fmt.Sprintf("class %s of %s is unavailable on this node: %s", quote(class), o.Name, o.Unavailable.Message), ErrUnavailable}
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	const most = 50
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// podScopeOnly refuses a container's request for a resource that pods have.
func podScopeOnly(resource string) refusal {
	return refusal{resource + " is for pods, not for containers; ask for it in annotation " + PodKey, ErrBadRequest}
}

// check says whether a class can be given. The system default can be, even where the resource is unavailable.
func (o *Offer) check(class string) (why refusal, ok bool) {
	if class == SystemDefault {
		return refusal{}, true
	}
	if o.Unavailable != nil {
		return o.unavailable(class), false
	}
	if _, found := o.Class(class); !found {
		return o.unknownClass(class), false
	}
	return refusal{}, true
}
