// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimesetup

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// NoUpdates returns the reason why an NRI plugin should not request updates of containers from a runtime, or "" if it can. `nri` is the
// version of the runtime's NRI, or "" if it is not known.
//
// Before NRI 0.12.1, the runtime acquires two locks in one order for a hook, and in the other order for an update that
// a plugin requests (containerd issue 13733). If an update and a hook run at the same time, the runtime hangs until it
// is restarted. containerd 2.4.0 is the first version with NRI 0.12.1 or later. CRI-O has the same locks. It also
// makes an update under the lock of all hooks, and waits for a container that stops (CRI-O pull request 9835).
//
// NoUpdates permits updates only for versions that are known to work: if the plugin writes the values itself, this
// does less harm than a runtime that hangs.
func NoUpdates(name, has, nri string) string {
	r := runtime{name: name, version: has}
	switch {
	case r.family() == containerd && (atLeast(nri, "0.12.1") || atLeast(has, "2.4.0")):
		return ""
	case r.family() == containerd:
		return fmt.Sprintf("containerd %s can hang when an NRI plugin requests an update of a container; use containerd 2.4 or later", has)
	case r.family() == crio:
		return fmt.Sprintf("CRI-O %s can hang when an NRI plugin requests an update of a container", has)
	}
	return fmt.Sprintf("it is not known whether %s %s can hang when an NRI plugin requests an update of a container", name, has)
}

// atLeast reports whether a version, e.g. "v2.4.2-k3s1", is `least` or later. It returns false for an unknown version.
func atLeast(has, least string) bool {
	v, err := version.ParseGeneric(has)
	return err == nil && v.AtLeast(version.MustParseGeneric(least))
}

// updates reports whether the runtime can hang because of an NRI plugin.
func (i *inspection) updates() {
	if reason := NoUpdates(i.name, i.version, ""); reason != "" {
		i.report(Warning, "%s, so this plugin requests no updates, but other plugins may request them", reason)
	}
}
