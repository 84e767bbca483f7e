// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nri0123_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// podClasses is classFile with one more resource. The only class of this resource is the default class of pods, and sets the weight
// of their cgroups.
const podClasses = classFile + `
- name: qos.noderesource.dev/pod-blockio
  scope: pod
  defaultClass: all
  classes: [{name: all}]
  blockio: {Classes: {all: [{Weight: "1000"}]}}
`

// hangsInEachHook makes the plugin hang in each of its hooks. The runtime has NRI's default validator. With an NRI before
// 0.12.5, the runtime continues without a plugin that answers too late.
func hangsInEachHook(t *testing.T, r *rig) {
	r.validate(t, r.host)
	must(t, os.WriteFile(filepath.Join(r.dir, "classes.yaml"), []byte(podClasses), 0o600))

	p := r.start(t)
	pod := r.requiring(t, "first")

	p.stopped(t)
	r.wantNotCreated(t, pod, "validator plugin 10-qos-nri-plugin failed") // the runtime still lists the plugin among those that it called
	r.wantNotCreated(t, pod, `required plugin "qos-nri-plugin" not present`)
	p.goesOn(t)
	r.wait(t, 2)

	id, err := r.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: "main"})
	must(t, err)

	p.stopped(t)
	if err := r.StartContainer(t.Context(), id); err != nil {
		t.Errorf("the start fails: %v", err)
	}

	if got := r.weight(t, id); got != heavyWeight {
		t.Errorf("the container has started with the weight %q, want the weight of its class, which the runtime has set", got)
	}

	p.goesOn(t)
	r.wait(t, 3)

	p.stopped(t)
	pod = r.requiring(t, "second")
	if got := r.podWeight(t, "second"); got != initialWeight {
		t.Errorf("the pod has the weight %q", got)
	}

	r.wantNotCreated(t, pod, `required plugin "qos-nri-plugin" not present`)
	p.goesOn(t)
	r.wait(t, 4)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for r.podWeight(t, "second") == initialWeight && ctx.Err() == nil {
		// The loop waits, because the plugin applies the class of the pod some time after it has registered again.
	}

	if got := r.podWeight(t, "second"); got != heavyWeight {
		t.Errorf("the pod has the weight %q after the plugin is back", got)
	}
}

func (r *rig) wantNotCreated(t *testing.T, pod, want string) {
	t.Helper()
	if _, err := r.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: "main"}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want one with %q", err, want)
	}
}

// podWeight is io.weight of a pod.
func (r *rig) podWeight(t *testing.T, uid string) string {
	t.Helper()
	weight, err := os.ReadFile(filepath.Join(r.host.Root, "sys/fs/cgroup/kubepods/pod"+uid, "io.weight"))
	must(t, err)
	return strings.TrimSpace(string(weight)) + "\n"
}
