// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/test/apitest"
)

func TestTopShowsOneInterval(t *testing.T) {
	wantAnswer(t, answer{Out: `
RESOURCE        CLASS             PART  USED_BYTES/s
k8s.io/blockio  <system default>  -     0

RESOURCE    CLASS   PART  USED_BYTES/s
k8s.io/rdt  bronze  -     0
k8s.io/rdt  gold    -     0

RESOURCE                CLASS             PART  USED_BYTES/s
vendor.example/network  <system default>  -     0
vendor.example/network  fast              -     0

RESOURCE        NAMESPACE    POD    CONTAINER  CLASS             PART  USED_BYTES/s
k8s.io/blockio  default      web    main       <system default>  -     0
k8s.io/blockio  kube-system  agent  main       <system default>  -     0
k8s.io/blockio  kube-system  agent  side       <system default>  -     0

RESOURCE    NAMESPACE    POD    CONTAINER  CLASS   PART  USED_BYTES/s
k8s.io/rdt  default      web    main       gold    -     0
k8s.io/rdt  kube-system  agent  main       bronze  -     0
k8s.io/rdt  kube-system  agent  side       bronze  -     0

RESOURCE                NAMESPACE    POD    CONTAINER  CLASS             PART  USED_BYTES/s
vendor.example/network  default      web    <pod>      fast              -     0
vendor.example/network  kube-system  agent  <pod>      <system default>  -     0
`}, newFixture(t).ask(t, "top", "--once", "--containers", "--interval", "1s"))
}

func TestTopAsJSONIsAMessageOfTheAPI(t *testing.T) {
	f := newFixture(t)
	f.Backends[apitest.RDT].Use("id-web-main", 4096)
	got := f.ask(t, "top", "--once", "-o", "json")
	var message qosv1alpha1.WatchUsageResponse
	if err := protojson.Unmarshal([]byte(strings.ReplaceAll(got.Out, "TIME", "2026-05-01T12:00:00Z")), &message); err != nil {
		t.Fatalf("%v in %s", err, got.Out)
	}
	for _, class := range message.GetClasses() {
		if class.GetClass() == "gold" && class.GetMeasurements()[0].GetValue() == 4096 {
			return
		}
	}
	t.Errorf("message is %s", got.Out)
}

// TestTopRepeatsUntilInterrupted interrupts the command when its output shows a use in Mi. The first table shows no use, so the command
// must have printed another one. The output has no escape codes, because it is no terminal.
func TestTopRepeatsUntilInterrupted(t *testing.T) {
	f := newFixture(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	used := 0.0
	out := &untilBoth{words: [2]string{"k8s.io/rdt  bronze  -     0", "Mi\n"}, end: interrupt, saw: func() {
		used += 500 << 20 // messages are at least a second apart, so at most 500Mi/s are shown, and not a number of Gi
		f.Backends[apitest.RDT].Use("id-agent-main", used)
	}}

	root := newRootCommand()
	root.SetOut(out)
	code := program.Execute(ctx, root, []string{"top", "--interval", "1s", "--api-socket", f.socket})
	if code != 0 || strings.Contains(out.String(), "\x1b") {
		t.Errorf("exit code %d, want 0; output, which must have no escape codes: %q", code, out.String())
	}
}
