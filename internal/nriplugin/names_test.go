// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// TestNamesOfAnyLengthAndCharactersAreRefusedInAShortLine uses names that only a client of the runtime other than the
// kubelet can give to pods and containers.
func TestNamesOfAnyLengthAndCharactersAreRefusedInAShortLine(t *testing.T) {
	r := newRig(t)
	name := "\x1b[2J\u009b\n" + strings.Repeat("x", 300<<10)
	pod := r.podWith(t, nriruntime.PodConfig{
		Name: name, Namespace: name, UID: name, CgroupParent: "/kubepods/pod1",
		Annotations: map[string]string{"qos.noderesource.dev/pod": "test.example/cache=" + name[:8<<10]},
	})

	_, err := r.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: name})
	if err == nil {
		t.Fatal("a container with a malformed request is created")
	}

	refused := r.node.Refused()
	if len(refused) != 1 || refused[0].Reason != "BadRequest" {
		t.Fatalf("%d containers are refused, want one: %.1000v", len(refused), refused)
	}

	for _, text := range []string{err.Error(), fmt.Sprint(refused)} {
		if len(text) > 4<<10 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("the refusal is too long or not printable: %d bytes, %.1000q", len(text), text)
		}
	}
}

func TestTheErrorOfABackendIsAShortLine(t *testing.T) {
	r := newRig(t)
	r.backend.Fail("enforce", fmt.Errorf("open /\x1b[2J/%s\nno such file", strings.Repeat("x", 300<<10)))
	_, err := r.run(t, r.pod(t, "web", "test.example/cache=gold"))
	if err == nil || !strings.Contains(err.Error(), "pod default/web container main: ") {
		t.Fatalf("the start returned %.1000v, want an error that names pod and container", err)
	}

	if text := err.Error(); len(text) > 5<<10 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("the refusal has %d bytes: %.1000q", len(text), text)
	}
}
