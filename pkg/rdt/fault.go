// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"maps"

	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// faultError is the error if the memory bandwidth of a group reads back as a value that rounding does not explain.
type faultError struct {
	group       string
	wanted, got resctrl.Schemata
	err         error
}

func (f *faultError) Error() string { return f.err.Error() }

func (f *faultError) Unwrap() error { return f.err }

// orFault returns a *faultError in place of err if only memory bandwidth differs between the wanted values of a group and those that
// the kernel reads back.
func orFault(err error, group string, wanted, got resctrl.Schemata, info resctrl.Info) error {
	bandwidth := maps.Clone(wanted)
	maps.DeleteFunc(bandwidth, func(d resctrl.Domain, _ uint64) bool {
		return d.Schema != resctrl.MB || len(info.Differences(resctrl.Schemata{d: wanted[d]}, got)) == 0
	})
	if len(info.Differences(wanted, got)) != len(bandwidth) {
		return err
	}
	return &faultError{group, bandwidth, got, err}
}

// has reports whether the values of a fault are values of a configured group.
func (r *Resolution) has(fault *faultError) bool {
	for domain := range fault.wanted {
		if _, ok := r.Groups[fault.group][domain]; !ok {
			return false
		}
	}
	return true
}

// leave removes the values of a fault from the resolution, so that the group keeps its present bandwidth. For a new
// group, this is no limit.
func (r *Resolution) leave(fault *faultError) {
	class := groups.ClassOf(fault.group)
	for _, domain := range fault.wanted.Domains() {
		delete(r.Groups[fault.group], domain)
		r.ignore(class, "memory bandwidth of cache ID %d is left as it is, because of a fault of the kernel: "+
			"it reads back %s for %s; write another share, or update the kernel", domain.ID, fault.got.Value(domain), fault.wanted.Value(domain))
	}
}
