// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/test/apitest"
)

// TestUpdate compares what the command prints, and its exit code.
func TestUpdate(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want answer
	}{
		{"changes several classes, and shows the previous ones", []string{"default/web", "main", "rdt=bronze,blockio=high-prio"}, answer{
			Out: "pod default/web container main: k8s.io/rdt gold -> bronze\n" +
				"pod default/web container main: k8s.io/blockio <system default> -> high-prio\n",
		}},
		{"finds a pod by its UID", []string{"uid-web", "main", "k8s.io/rdt=bronze"}, answer{
			Out: "pod default/web container main: k8s.io/rdt gold -> bronze\n",
		}},
		{"changes the class to the system default", []string{"default/web", "main", "rdt="}, answer{
			Out: "pod default/web container main: k8s.io/rdt gold -> <system default>\n",
		}},
		{"changes the class of a pod itself", []string{"default/web", "vendor.example/network="}, answer{
			Out: "pod default/web: vendor.example/network fast -> <system default>\n",
		}},
		{"refuses a resource of containers for a pod", []string{"default/web", "rdt=bronze"}, answer{
			Code: 1, Errors: "Error: pod default/web: k8s.io/rdt is for containers, not for pods: malformed QoS request\n",
		}},
		{"reports that nothing changes", []string{"default/web", "main", "rdt=gold"}, answer{
			Out: "pod default/web container main: k8s.io/rdt stays gold\n",
		}},
		{"prints a YAML document with all classes of the container", []string{"default/web", "main", "rdt=bronze", "-o", "yaml"}, answer{Out: `
---
container:
  id: id-web-main
  name: main
  qosResources:
  - class: bronze
    foreign: ""
    limited: ""
    name: k8s.io/rdt
    replaced: ""
    requestedBy: ""
    source: SOURCE_UPDATE
    stale: ""
  - class: ""
    foreign: ""
    limited: ""
    name: k8s.io/blockio
    replaced: ""
    requestedBy: ""
    source: SOURCE_UNSPECIFIED
    stale: ""
  volumes: []
`}},
		{"names the containers of the pod if the container does not exist", []string{"kube-system/agent", "mian", "rdt=bronze"}, answer{
			Code: 1, Errors: "Error: pod kube-system/agent has no container \"mian\"; its containers: main, side\n",
		}},
		{"names the pods if the pod does not exist", []string{"default/wbe", "main", "rdt=bronze"}, answer{
			Code: 1, Errors: "Error: no pod \"default/wbe\" with QoS-class resources is on this node; there are default/web, kube-system/agent\n",
		}},
		{"prints why a class is refused, without words of gRPC", []string{"kube-system/agent", "side", "rdt=gold"}, answer{
			Code: 1, Errors: "Error: pod kube-system/agent container side: class \"gold\" of k8s.io/rdt is full: 1 of 1 in use; available: bronze\n",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantAnswer(t, test.want, newFixture(t).ask(t, append([]string{"update"}, test.args...)...))
		})
	}
}

func TestUpdateChangesNothingWhenOneClassIsRefused(t *testing.T) {
	f := newFixture(t)
	before := f.ask(t, "assignments")
	f.Backends[apitest.BlockIO].Fail("enforce high-prio", errors.New("write io.max: no such device"))
	got := f.ask(t, "update", "default/web", "main", "rdt=bronze,blockio=high-prio")
	if got.Code != 1 || got.Out != "" {
		t.Errorf("answer is %+v", got)
	}
	wantAnswer(t, before, f.ask(t, "assignments"))
}

func TestUpdateAsksForAUIDWhenTwoPodsHaveTheName(t *testing.T) {
	f := newFixture(t)
	must(t, f.RunPodAs(t.Context(), "uid-older", "default", "web", "", "main"))
	wantAnswer(t, answer{
		Code: 1, Errors: "Error: 2 pods have the name default/web; choose one of them by its UID: uid-older, uid-web\n",
	}, f.ask(t, "update", "default/web", "main", "rdt=bronze"))
}

// stick makes the change to class bronze wait until the end of the test, or until `release` is called.
func (f *fixture) stick(t *testing.T) (release func()) {
	t.Helper()
	released := make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	f.Backends[apitest.RDT].Stick("enforce bronze", released)
	return release
}

func TestAnUpdateReportsThatItWaits(t *testing.T) {
	f := newFixture(t)
	release := f.stick(t)
	reader, writer := io.Pipe()
	root := newRootCommand()
	root.SetOut(io.Discard)
	root.SetErr(writer)
	code := make(chan int, 1)
	go func() {
		code <- program.Execute(t.Context(), root, []string{"update", "default/web", "main", "rdt=bronze", "--api-socket", f.socket})
		_ = writer.Close()
	}()

	line, err := bufio.NewReader(reader).ReadString('\n')
	release()
	if want := "Waiting up to 1m0s for the container runtime and the kernel to change the class\n"; err != nil || line != want {
		t.Errorf("the command printed %q and %v, want %q", line, err, want)
	}

	if got := <-code; got != 0 {
		t.Errorf("exit code %d", got)
	}
}

func TestAnUpdateWithoutAnAnswerHasAnUnknownResult(t *testing.T) {
	f := newFixture(t)
	f.stick(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // instead of a minute
	defer cancel()
	got := run(ctx, "update", "default/web", "main", "rdt=bronze", "--api-socket", f.socket)
	const want = "qos-nri-plugin has not answered within 1m0s, so it is not known whether the class was changed; to see the current class, run: qos-nri-plugin assignments"
	if got.Code != 1 || !strings.Contains(got.Errors, want) {
		t.Errorf("answer is %+v", got)
	}
}
