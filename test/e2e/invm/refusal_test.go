// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

const (
	ownKey = "container.qos.noderesource.dev/main"
	podKey = "qos.noderesource.dev/pod"
)

// wantRefusal checks that an error is what the runtime's clients see of the plugin's: one line, with these parts in their order.
func wantRefusal(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Error("not refused")
		return
	}
	message := status.Convert(err).Message()
	if code := status.Code(err); code != codes.Unknown {
		t.Errorf("code %s, want Unknown", code)
	}
	rest := message
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("refusal lacks %q: %s", part, message)
			return
		}
		rest = after
	}
	if strings.Contains(strings.TrimSpace(message), "\n") {
		t.Errorf("refusal has several lines: %q", message)
	}
	t.Logf("refusal: %s", message)
}

func (n *node) status(t testing.TB) *qos.StatusResponse {
	t.Helper()
	response, err := n.api(t).Status(requestContext(t), &qos.StatusRequest{})
	must(t, err)
	return response
}

func unknownClass(t *testing.T, n *node) {
	p := n.runPod(t, "unknown", map[string]string{ownKey: "rdt=platinum"})
	_, err := p.create(t, spec{name: "main"})
	wantRefusal(t, err, `pod default/unknown container main: class "platinum" of k8s.io/rdt`, "available: gold, silver, bronze")

	other := n.runPod(t, "unknown-resource", map[string]string{ownKey: "network=fast"})
	_, err = other.create(t, spec{name: "main"})
	wantRefusal(t, err, `pod default/unknown-resource container main: resource "network"`, "available: k8s.io/rdt, k8s.io/blockio")
}

func fullClass(t *testing.T, n *node) {
	p := n.runPod(t, "full", map[string]string{podKey: "rdt=gold"})
	first := p.run(t, spec{name: "one"})
	p.run(t, spec{name: "two"})
	_, err := p.create(t, spec{name: "three"})
	wantRefusal(t, err, `pod default/full container three: class "gold" of k8s.io/rdt`, "2")

	first.stop(t)
	first.remove(t)
	third := p.run(t, spec{name: "three"})
	third.wantGroup(t, "qos-gold")
}

func restartedContainer(t *testing.T, n *node) {
	p := n.runPod(t, "again", map[string]string{ownKey: "blockio=single"})
	dead := p.run(t, spec{name: "main"})
	dead.stop(t)
	p.run(t, spec{name: "main", attempt: 1})
	dead.remove(t)
	_, err := p.create(t, spec{name: "other", annotations: map[string]string{"io.kubernetes.cri.blockio-class": "single"}})
	wantRefusal(t, err, `pod default/again container other: class "single" of k8s.io/blockio`)
}
