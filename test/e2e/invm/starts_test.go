// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// showGroup returns the arguments with which a workload prints its resctrl group before it does anything else.
func showGroup() []string { return []string{"show", "/proc/self/cpu_resctrl_groups"} }

// startsOutside: a container that cannot be moved into its class at its start executes no instruction, even if the
// runtime only logs the refusal. When the class has its group again, the next attempt runs in this group.
func startsOutside(t *testing.T, p *pod) {
	n := p.node
	c := p.admit(t, spec{name: "main", args: showGroup()})
	release := takeGroup(t, "qos-gold")
	_, err := n.runtime.StartContainer(requestContext(t), &cri.StartContainerRequest{ContainerId: c.id})
	t.Logf("the start of a container whose class has no group returned %v", err)
	c.wantNeverRan(t)
	if got, want := n.refusalOf(t, p, "main"), `class "gold" of k8s.io/rdt`; !strings.Contains(got, want) {
		t.Errorf("reported refusal %q, want %q in it", got, want)
	}

	c.remove(t)
	release()
	eventually(t, "the class has its group again", func() error {
		if schemataLinesOr(t, "qos-gold") == nil {
			return errors.New("no group")
		}
		return nil
	})

	again := p.run(t, spec{name: "main", attempt: 1, args: showGroup()})
	again.wantFirstGroup(t, "qos-gold")
	if got := n.refusalOf(t, p, "main"); got != "" {
		t.Errorf("the container runs in its class, but is reported as refused: %q", got)
	}
}

// takeGroup removes a group, and takes all free CLOSIDs as other programs would, until `release` is called.
func takeGroup(t *testing.T, group string) (release func()) {
	t.Helper()
	var taken []string
	release = func() {
		for _, name := range taken {
			must(t, os.Remove(name))
		}
		taken = nil
	}

	t.Cleanup(release)
	take := func() error {
		name := filepath.Join(resctrlRoot, fmt.Sprint("taken", len(taken)))
		err := os.Mkdir(name, 0o755)
		if err == nil {
			taken = append(taken, name)
		}
		return err
	}

	for take() == nil { // until there are no more CLOSIDs
	}
	eventually(t, "another program has the group's CLOSID", func() error {
		return errors.Join(unlessGone(os.Remove(filepath.Join(resctrlRoot, group))), take())
	})

	return release
}

// movedBeforeStart: another program moves a created container out of its group. When the container starts, it is in its
// group again.
func movedBeforeStart(t *testing.T, p *pod) {
	c := p.admit(t, spec{name: "main", attempt: 2, args: showGroup()})
	for _, process := range p.node.processes(t, c.cgroup()) {
		mustWrite(t, filepath.Join(resctrlRoot, "tasks"), process)
	}
	c.start(t)
	c.wantFirstGroup(t, "qos-gold")
}

// createdWithoutPlugin: containers are created while the plugin does not run, and started when it runs again. They run
// in their classes. If the class is full, the container does not run.
func createdWithoutPlugin(t *testing.T, p *pod) {
	n := p.node
	n.plugin.end(t, syscall.SIGTERM)
	var c *container
	eventually(t, "the runtime creates containers without the plugin", func() (err error) {
		c, err = p.create(t, spec{name: "changed", args: showGroup()})
		return err
	})

	t.Cleanup(func() { c.remove(t) })
	var golds []*container
	for _, name := range []string{"one", "two", "three"} {
		golds = append(golds, p.admit(t, spec{name: name, args: showGroup()}))
	}

	n.startPlugin(t)

	c.start(t)
	c.wantFirstGroup(t, "qos-silver")
	wantLimits(t, n.limits(t, c.cgroup()), throttled(t))
	n.wantAssignment(t, p, "changed", &qos.Assignment{
		Name: rdt, Class: "silver", Source: qos.Source_SOURCE_CONTAINER, RequestedBy: keyOf("changed"),
	})

	for _, gold := range golds[:2] {
		gold.start(t)
		gold.wantFirstGroup(t, "qos-gold")
	}

	_, err := n.runtime.StartContainer(requestContext(t), &cri.StartContainerRequest{ContainerId: golds[2].id})
	t.Logf("the start of a third container in a class with capacity 2 returned %v", err)
	golds[2].wantNeverRan(t)
}

// refusedByOCIRuntime: a container that the OCI runtime cannot create leaves its slot to its next attempt and, when its
// pod has ended, to other containers.
func refusedByOCIRuntime(t *testing.T, shared *pod) {
	n := shared.node
	p := n.runPod(t, "refused", requests())
	p.startMissingProgram(t, spec{name: "again", command: []string{"/missing"}})
	p.admit(t, spec{name: "again", attempt: 1}).remove(t)
	p.startMissingProgram(t, spec{name: "again", command: []string{"/missing"}, attempt: 2})
	p.remove(t)
	shared.admit(t, spec{name: "other"})
}

// startMissingProgram creates and starts a container whose command does not exist. With CRI-O the creation must fail,
// with containerd the start.
func (p *pod) startMissingProgram(t *testing.T, s spec) {
	t.Helper()
	c, err := p.create(t, s)
	if err == nil {
		_, err = p.node.runtime.StartContainer(requestContext(t), &cri.StartContainerRequest{ContainerId: c.id})
		c.remove(t)
	}
	if err == nil || !strings.Contains(err.Error(), s.command[0]) {
		t.Fatalf("the start of a container whose program is missing returned %v, want an error that names the program", err)
	}
}

// stoppedSandbox: a sandbox that has stopped, and is not removed yet, has no slot, even after a restart of the plugin.
func stoppedSandbox(t *testing.T, shared *pod) {
	n := shared.node
	slow := map[string]string{podKey: podBlockio + "=slow"}
	p := n.runPod(t, "stopped", slow)
	_, err := n.runtime.StopPodSandbox(requestContext(t), &cri.StopPodSandboxRequest{PodSandboxId: p.id})
	must(t, err)
	n.restartPlugin(t)
	n.wantPodClasses(t, "slow 0", "slower 0")
	n.runPod(t, "stopped-next", slow)
	n.wantPodClasses(t, "slow 1", "slower 0")
}

// wantFirstGroup checks in which group a container with showGroup was when it executed its first instructions.
func (c *container) wantFirstGroup(t testing.TB, group string) {
	t.Helper()
	if first, _, _ := strings.Cut(c.printed(t), "\n"); first != groupLine(group) {
		t.Errorf("resctrl group of the container when it started: %q, want %q", first, groupLine(group))
	}
	c.wantGroup(t, group)
}

// wantNeverRan checks that a container ends without having executed an instruction of its program, which would print. CRI-O removes a
// container that it could not start.
func (c *container) wantNeverRan(t testing.TB) {
	t.Helper()
	eventually(t, "the container has ended", func() error {
		if printed := readOrNothing(c.log); len(printed) > 0 {
			t.Fatalf("the container has run, and printed: %s", printed)
		}
		found, err := c.pod.node.runtime.ContainerStatus(requestContext(t), &cri.ContainerStatusRequest{ContainerId: c.id})
		if status.Code(err) == codes.NotFound {
			return nil
		}
		if state := found.GetStatus().GetState(); err == nil && state != cri.ContainerState_CONTAINER_EXITED {
			err = fmt.Errorf("the container is in state %s", state)
		}
		return err
	})
}

// refusalOf returns the refusal that the plugin reports for a container, or "".
func (n *node) refusalOf(t testing.TB, p *pod, container string) string {
	t.Helper()
	for _, refusal := range n.assignments(t).GetRefusals() {
		if refusal.GetPodUid() == p.config.Metadata.Uid && refusal.GetContainer() == container {
			return refusal.GetMessage()
		}
	}
	return ""
}
