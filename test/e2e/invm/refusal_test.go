// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// podKey is the annotation for requests of a pod.
const podKey = "qos.noderesource.dev/pod"

// wantRefusal checks the exact error of the runtime.
func wantRefusal(t testing.TB, err error, want string) {
	t.Helper()
	if err == nil {
		t.Errorf("the request was not refused, want: %s", want)
		return
	}
	if diff := cmp.Diff(want, status.Convert(err).Message()); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
	if code := status.Code(err); code != codes.Unknown {
		t.Errorf("the request was refused with code %s, want Unknown", code)
	}
}

// unknownClass: the error of a creation names the container, the class or the resource that does not exist, and the available ones.
func unknownClass(t *testing.T, p *pod) {
	n := p.node
	_, err := p.create(t, spec{name: "platinum"})
	wantRefusal(t, err, n.kind.containerRefused+`pod default/shared container platinum: class "platinum" of k8s.io/rdt does not exist on `+
		`this node; available: gold, silver, bronze (requested by annotation container.qos.noderesource.dev/platinum)`)
	_, err = p.create(t, spec{name: "networked"})
	available := "k8s.io/rdt, k8s.io/blockio, " + podBlockio
	if !n.cgroupV2 { // resources of pods need cgroup v2
		available = "k8s.io/rdt, k8s.io/blockio"
	}
	wantRefusal(t, err, n.kind.containerRefused+`pod default/shared container networked: resource "network" does not exist on this node; `+
		`available: `+available+` (requested by annotation container.qos.noderesource.dev/networked)`)
}

// fullClass: class gold has two slots.
func fullClass(t *testing.T, p *pod) {
	n := p.node
	first := p.admit(t, spec{name: "one"})
	p.admit(t, spec{name: "two"})
	_, err := p.create(t, spec{name: "three"})
	wantRefusal(t, err, n.kind.containerRefused+`pod default/shared container three: class "gold" of k8s.io/rdt is full: 2 of 2 in use, all by this pod itself, which requests more; `+
		`available: silver, bronze`)
	first.remove(t)
	p.admit(t, spec{name: "three"})
}

// restartedContainer: class single has one slot. The next attempt of a container gets the slot of the attempt before it,
// and keeps the slot when the runtime removes the earlier attempt.
func restartedContainer(t *testing.T, p *pod) {
	n := p.node
	dead := p.run(t, spec{name: "again"})
	dead.stop(t)
	p.admit(t, spec{name: "again", attempt: 1})
	dead.remove(t)
	_, err := p.create(t, spec{name: "other"})
	wantRefusal(t, err, n.kind.containerRefused+`pod default/shared container other: class "single" of k8s.io/blockio is full: 1 of 1 in use, all by this pod itself, which requests more; `+
		`available: throttled, slower, weighted`)
}
