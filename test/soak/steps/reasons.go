// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// These are reasons for failures.
const (
	classFull       = "ClassFull"
	unknownClass    = "UnknownClass"
	unknownResource = "UnknownResource"
	unavailable     = "Unavailable"
	contradiction   = "Contradiction"
	badRequest      = "BadRequest"
	pluginAway      = "PluginAway"
	pluginKilled    = "PluginKilled"
	notRunning      = "NotRunning"
	runtimesOwn     = "RuntimesOwn"
	refusedChange   = "RefusedChange"
	other           = "Other"
)

// reasonOf returns the reason in an error of the runtime or of the node API.
func reasonOf(err error) string {
	text := err.Error()
	for _, known := range []struct{ words, reason string }{
		{"RDT not initialized", runtimesOwn}, // containerd itself reads some of the plugin's annotations
		{" is full: ", classFull},
		{" contradicts the ", contradiction},
		{"is unavailable on this node", unavailable},
		{"resource \"", unknownResource},
		{" does not exist on this node; available: ", unknownClass},
		{": the request ", badRequest},
		{"s, not for ", badRequest},
		{"this node has ", unknownResource},
		{"not running yet", notRunning},
		{"not connected to the container runtime", pluginAway},
		{"input/output error", pluginKilled}, // its calls to the machine fail
		{"ttrpc: closed", pluginKilled},
		{"no space left on device", refusedChange}, // the interface Faults causes this error
		{"containers failed", refusedChange},
		{"no such cgroup", notRunning},
	} {
		if strings.Contains(text, known.words) {
			return known.reason
		}
	}

	switch code := status.Code(err); {
	case code == codes.Unavailable, code == codes.Canceled, errors.Is(err, context.Canceled), errors.Is(err, errNoPlugin):
		return pluginAway
	case code == codes.NotFound:
		return notRunning
	}

	return other
}

// errNoPlugin is returned for operations that need the plugin while it does not run.
var errNoPlugin = errors.New("the plugin does not run")
