// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func TestFlagsHaveTheirDocumentedDefaults(t *testing.T) {
	want := map[string]string{
		"config":                "/etc/qos-nri-plugin",
		"nri-socket":            "/var/run/nri/nri.sock",
		"nri-index":             "10",
		"api-socket":            "/run/qos-nri-plugin/qos.sock",
		"api-socket-group":      "",
		"api-read-socket":       "",
		"api-read-socket-group": "",
		"metrics-address":       "127.0.0.1:9420",
		"host-root":             "/",
		"state-dir":             "/run/qos-nri-plugin",
		"held-interval":         "0s",
		"history-interval":      "0s",
		"mount-resctrl":         "true",
		"tracing-endpoint":      "",
		"log-level":             "info",
		"log-format":            "text",
	}

	got := map[string]string{}
	newRunCommand().Flags().VisitAll(func(f *pflag.Flag) { got[f.Name] = f.DefValue })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
