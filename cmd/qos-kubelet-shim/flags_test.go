// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func TestFlagsHaveTheDocumentedDefaults(t *testing.T) {
	want := map[string]string{
		"api-socket":         "/run/qos-nri-plugin/qos.sock",
		"kubelet-dir":        "/var/lib/kubelet",
		"kubeconfig":         "",
		"publish":            "[device-plugin,node-object,pod-conditions,events,evictions]",
		"follow-annotations": "false",
		"follow-claims":      "false",
		"grace":              "30s",
		"metrics-address":    "127.0.0.1:9421",
		"log-level":          "info",
		"log-format":         "text",
		"node-name":          hostname(), // the kubelet's default without --hostname-override
	}

	got := map[string]string{}
	newRootCommand().Flags().VisitAll(func(f *pflag.Flag) { got[f.Name] = f.DefValue })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
