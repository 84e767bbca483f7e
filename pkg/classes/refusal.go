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
	names := make([]string, 0, len(o.Classes))
	for _, class := range o.Classes {
		names = append(names, class.Name)
	}
	return refusal{fmt.Sprintf("class %s of %s does not exist on this node; available: %s", quote(name), o.Name, list(names)), ErrUnknownClass}
}

func (o *Offer) unavailable(class string) refusal {
	return refusal{fmt.Sprintf("class %s of %s is unavailable on this node: %s", quote(class), o.Name, o.Unavailable.Message), ErrUnavailable}
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
