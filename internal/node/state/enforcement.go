// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

// These errors are the reasons why the store does not accept a report of another program.
var (
	ErrNotEnforcer = errors.New("only root and the user in external.enforcerUser of the class file may report on the resource")
	ErrNotExternal = errors.New("the plugin itself enforces the classes of the resource")
	ErrOtherClass  = errors.New("has another class now")
)

// maxProblem is the maximum size of a reported problem, in bytes.
const maxProblem = 256

// EnforcementReport says whether another program could enforce the class of a container or pod.
type EnforcementReport struct {
	Resource, Class string
	// Problem is the reason why the class is not enforced. It is empty if the class is enforced.
	Problem string
	// User is the user ID of the program that reports. Privileged is true if the program may report on all resources.
	User       uint32
	Privileged bool
}

// ReportEnforcement records the report of a program that enforces the classes of a resource.
func (s *Store) ReportEnforcement(owner qos.Subject, r EnforcementReport) error {
	defer s.lock()()
	n := &s.node

	offer, known := n.live.Catalog.Lookup(r.Resource)
	if !known {
		return fmt.Errorf("%w: %q; this node has %s", classes.ErrUnknownResource, r.Resource, n.live.resourceList())
	}
	external, is := n.live.external(offer.Name)
	if !is {
		return fmt.Errorf("%s: %w", offer.Name, ErrNotExternal)
	}
	if user, named := external.EnforcerUser(); !r.Privileged && (!named || user != r.User) {
		return fmt.Errorf("%s: %w", offer.Name, ErrNotEnforcer)
	}

	h, err := n.table.running(owner)
	if err != nil {
		return err
	}
	if class := h.Class(offer.Name); class != r.Class {
		return fmt.Errorf("%s: %w: %q of %s", h, ErrOtherClass, class, offer.Name)
	}
	n.update(h.ID, func(h *Holding) {
		h.NotEnforced = with(h.NotEnforced, offer.Name, problemText(r.Problem), r.Problem != "")
	})
	return nil
}

// external returns the configuration of a resource that another program enforces. `is` is false for other resources,
// and for resources that are not in the live configuration.
func (o Offering) external(resource string) (external classes.External, is bool) {
	if !o.Configured(resource) {
		return nil, false
	}
	external, is = o.Resources[resource].Config.Backend.(classes.External)
	return external, is
}

// endReports removes the reports on resources that no other program enforces any more, because no program could
// withdraw these reports.
func (n *node) endReports() {
	for _, h := range n.table.Where(func(h *Holding) bool { return len(h.NotEnforced) > 0 }) {
		n.update(h.ID, func(h *Holding) {
			for resource := range h.NotEnforced {
				if _, is := n.live.external(resource); !is {
					h.NotEnforced = with(h.NotEnforced, resource, "", false)
				}
			}
		})
	}
}

// problemText returns a problem without the characters that separate the parts of a message.
func problemText(problem string) string {
	separators := strings.NewReplacer(",", "", ";", "", "[", "(", "]", ")", "\n", " ")
	return "not enforced: " + printable.Text(separators.Replace(problem), maxProblem)
}
