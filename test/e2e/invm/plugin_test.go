// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

const apiSocket = "/run/qos-nri-plugin/qos.sock"

// classFile is the plugin's class file. All limits are different, so that none can be mistaken for another.
const classFile = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  defaultClass: bronze
  classes: [{name: gold, capacity: 2}, {name: silver}, {name: bronze}]
  rdt:
    partitions:
      exclusive:
        l3Allocation: "50%"
        mbAllocation: ["100%"]
        classes: {gold: {l3Allocation: "100%", mbAllocation: ["100%"]}}
      shared:
        l3Allocation: "50%"
        mbAllocation: ["50%"]
        classes:
          silver: {l3Allocation: "100%", mbAllocation: ["100%"]}
          bronze: {l3Allocation: "50%", mbAllocation: ["40%"]}
- name: k8s.io/blockio
  classes: [{name: throttled}, {name: slower}, {name: single, capacity: 1}, {name: weighted}]
  blockio:
    Classes:
      throttled:
      - {Devices: [/dev/vda], ThrottleReadBps: 2M, ThrottleWriteBps: 1M}
      - {Devices: [/dev/vdb], ThrottleReadBps: 1M, ThrottleWriteBps: 2M}
      slower: [{Devices: [/dev/vda], ThrottleReadBps: 700k}]
      single: [{Devices: ["/dev/vd?"], ThrottleReadIOPS: 1000}]
      weighted: [{Weight: 400}, {Devices: [/dev/vdb], Weight: 200}]
- name: qos.noderesource.dev/pod-blockio
  scope: pod
  classes: [{name: slow, capacity: 1}, {name: slower}]
  blockio:
    Classes:
      slow: [{Devices: [/dev/vda], ThrottleReadBps: 3M}]
      slower: [{Devices: [/dev/vda], ThrottleReadBps: 600k}]
`

// startPlugin starts the plugin and waits until it is registered with the runtime.
func (n *node) startPlugin(t testing.TB) {
	t.Helper()
	must(t, os.MkdirAll(configDir, 0o755))
	n.plugin = start(t, "qos-nri-plugin", "run", "--nri-socket", nriSocket, "--log-level", "debug")
	n.waitRegistered(t)
}

// waitRegistered waits until the plugin is ready, e.g. after a restart of the plugin or of the runtime.
func (n *node) waitRegistered(t testing.TB) {
	t.Helper()
	eventually(t, "the plugin is registered", func() error {
		if err := n.plugin.alive(); err != nil {
			t.Fatal(err)
		}
		status, err := n.api(t).Status(requestContext(t), &qos.StatusRequest{})
		switch {
		case err != nil:
			return err
		case !status.GetRuntime().GetRegistered():
			return errors.New("not registered with the runtime")
		case status.GetConfig().GetGeneration() == 0:
			return fmt.Errorf("no configuration applied: %s", status.GetConfig().GetLastError())
		}
		return nil
	})
}

// api returns a client of the plugin. Its connection ends with the test.
func (n *node) api(t testing.TB) qos.NodeQOSClient {
	t.Helper()
	connection, err := grpc.NewClient("unix://"+apiSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { must(t, connection.Close()) })
	return qos.NewNodeQOSClient(connection)
}

// assignments returns the output of the plugin's command "assignments".
func (n *node) assignments(t testing.TB) *qos.ListAssignmentsResponse {
	t.Helper()
	printed, err := output("qos-nri-plugin", "assignments", "-o", "json")
	must(t, err)
	list := &qos.ListAssignmentsResponse{}
	must(t, protojson.Unmarshal([]byte(printed), list))
	return list
}

// assignment returns the class of a container, or of the pod if `container` is empty.
func (n *node) assignment(t testing.TB, p *pod, container, resource string) *qos.Assignment {
	t.Helper()
	list, err := n.api(t).ListAssignments(requestContext(t), &qos.ListAssignmentsRequest{PodUid: p.config.Metadata.Uid})
	must(t, err)
	if len(list.Pods) != 1 {
		t.Fatalf("%d pods with UID %s, want 1", len(list.Pods), p.config.Metadata.Uid)
	}

	all := list.Pods[0].QosResources
	for _, c := range list.Pods[0].Containers {
		if container != "" && c.Name == container {
			all = c.QosResources
		}
	}

	for _, a := range all {
		if a.Name == resource {
			return a
		}
	}

	t.Fatalf("%s container %q is reported without %s: %v", p.name(), container, resource, list)
	return nil
}

// update changes classes of the pod, or of a container if its name is the first argument. The change must succeed.
func (p *pod) update(t testing.TB, args ...string) {
	t.Helper()
	_, err := output("qos-nri-plugin", append([]string{"update", p.name()}, args...)...)
	must(t, err)
}

// wantAssignment checks the reported assignment of a container, or of the pod if `container` is empty.
func (n *node) wantAssignment(t testing.TB, p *pod, container string, want *qos.Assignment) {
	t.Helper()
	got := n.assignment(t, p, container, want.Name)
	if got.Class != want.Class || got.Source != want.Source || got.RequestedBy != want.RequestedBy {
		t.Errorf("%s container %q: reported %v, want %v", p.name(), container, got, want)
	}
}

// wantGroup checks that every thread of a container is in a resctrl group. It reads the tasks of the group, and the
// group in /proc of each process.
func (c *container) wantGroup(t testing.TB, group string) {
	t.Helper()
	must(t, c.inGroup(group))
}

func (c *container) inGroup(group string) error {
	processes, err := os.ReadFile(filepath.Join(c.pod.node.ioCgroup(c.cgroup()), "cgroup.procs"))
	if err != nil {
		return err
	}

	alive := 0
	for _, process := range strings.Fields(string(processes)) {
		groups, err := os.ReadFile(filepath.Join("/proc", process, "cpu_resctrl_groups"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the process has ended; processes of the OCI runtime live only briefly
		}
		if err != nil {
			return err
		}
		alive++
		if first, _, _ := strings.Cut(string(groups), "\n"); first != groupLine(group) {
			return fmt.Errorf("process %s: %q, want %q", process, first, groupLine(group))
		}
		if err := threadsInGroup(process, group); err != nil {
			return err
		}
	}

	if alive == 0 {
		return fmt.Errorf("no processes in %s", c.cgroup())
	}

	return nil
}

// threadsInGroup returns an error unless all threads of a process are in a group. It lists the threads before it reads the
// tasks of the group, because the process may start threads at any time.
func threadsInGroup(process, group string) error {
	directory := filepath.Join("/proc", process, "task")
	threads, err := os.ReadDir(directory)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the process has ended
	}
	if err != nil {
		return err
	}

	tasks, err := os.ReadFile(filepath.Join(resctrlRoot, group, "tasks"))
	if err != nil {
		return err
	}

	for _, thread := range threads {
		_, gone := os.Stat(filepath.Join(directory, thread.Name()))
		if gone == nil && !slices.Contains(strings.Fields(string(tasks)), thread.Name()) {
			return fmt.Errorf("thread %s of process %s is not in group %q", thread.Name(), process, group)
		}
	}

	return nil
}

// groupLine returns the first line of /proc/PID/cpu_resctrl_groups for a process in a group. "" is the root group.
func groupLine(group string) string {
	if group == "" {
		return "res:/"
	}
	return "res:" + group
}

// groupOf returns the name of the resctrl group of a class.
func groupOf(class string) string {
	if class == "" {
		return ""
	}
	return "qos-" + class
}

// deviceNumber returns the number of a device as "major:minor".
func deviceNumber(t testing.TB, path string) string {
	t.Helper()
	var stat syscall.Stat_t
	must(t, syscall.Stat(path, &stat))
	return fmt.Sprintf("%d:%d", stat.Rdev>>8&0xfff, stat.Rdev&0xff)
}
