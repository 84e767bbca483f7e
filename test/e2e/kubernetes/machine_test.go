// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/test/e2e/remote"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

// machine is the machine on which a node's programs run: this machine, in namespaces of its own, or a VM.
type machine interface {
	// begin makes the machine ready for containerd and the kubelet. end ends all programs on the machine, even if begin
	// has failed.
	begin(t *testing.T, n *node)
	end(t *testing.T, n *node)
	// node returns the settings of containerd and the kubelet for the machine.
	node() settings
	// path returns the path of a program on the machine. The method `program` returns a program that can be started and
	// ended. run runs a program to its end, and returns its output.
	path(program string) string
	program(name string, args ...string) program
	run(args ...string) (string, error)
	// kill kills a program by the beginning of its command line.
	kill(commandLine string) error
	// dial connects to a socket.
	dial(ctx context.Context, socket string) (net.Conn, error)
	// cgroup returns the cgroup of a container, relative to the root of the hierarchy with the io controller. kernel
	// reads the kernel's state.
	cgroup(id string) (string, error)
	kernel(live invariant.Live) (invariant.Kernel, error)
}

// settings has the settings of containerd and the kubelet that differ between machines.
type settings struct {
	cgroupRoot   string // of all containers
	cgroupDriver string
	// `statusFrequency` is the interval of the kubelet's reports of the node's status, and `syncFrequency` is the
	// interval at which it syncs each pod.
	statusFrequency, syncFrequency string
	memory                         string // settings of the kubelet for memory
	ociRuntime                     string // path of the program
	cni                            string // directory with cni.sh
	nri                            string // more settings of NRI
	timeouts                       string // the timeouts of containerd that are not its defaults
	// resources has the QoS resources of the node, e.g. "blockio". Each has the classes gold, silver, slow and standard.
	resources []string
}

// program is a program of a node that can be ended and started again.
type program interface {
	mustStart(t *testing.T)
	mustEnd(t *testing.T, signal syscall.Signal)
}

// local is this machine, as programs in the namespaces of inside.sh see it.
type local struct {
	bin, logs string
	groups    cgroups
}

func (l *local) begin(t *testing.T, n *node) {
	t.Helper()
	for _, dir := range []string{staticPods, "/etc/qos-nri-plugin", "/run/cni", "/run/bin"} {
		must(t, os.MkdirAll(dir, 0o755))
	}
	mustRun(t, "ip", "address", "add", n.ip+"/32", "dev", "lo")
	unpackImages(t, n, "/var/lib/containerd")
}

func (l *local) end(t *testing.T, n *node) {
	t.Helper()
	n.kubelet.mustEnd(t, syscall.SIGKILL)
	n.containerd.mustEnd(t, syscall.SIGKILL)
	mustRun(t, "ip", "address", "del", n.ip+"/32", "dev", "lo")
	// The veth devices are removed, because pods of the next node get the same addresses.
	mustRun(t, "sh", "-c", "ip -brief link show type veth | while IFS='@ ' read -r link rest; do ip link del $link; done")
}

func (l *local) node() settings {
	here, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return settings{
		cgroupRoot: "/" + l.groups.name, cgroupDriver: "cgroupfs", statusFrequency: "2s", syncFrequency: "5s", ociRuntime: l.path("runc"),
		cni: here, resources: []string{"blockio"},
	}
}

func (l *local) path(program string) string { return filepath.Join(l.bin, program) }

func (l *local) program(name string, args ...string) program {
	return &process{name: name, args: args, log: filepath.Join(l.logs, name+".log")}
}

func (l *local) run(args ...string) (string, error) {
	output, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	return string(output), err
}

// mustRun runs a program of this machine to its end.
func mustRun(t *testing.T, args ...string) {
	t.Helper()
	if output, err := (&local{}).run(args...); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, output)
	}
}

func (l *local) kill(commandLine string) error { return remote.Kill(commandLine) }

func (l *local) dial(ctx context.Context, socket string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", socket)
}

func (l *local) cgroup(id string) (string, error) {
	root := filepath.Join(cgroupRoot, "blkio")
	if unified() {
		root = cgroupRoot
	}
	dir, err := l.groups.ofContainer("blkio", id)
	return strings.TrimPrefix(dir, root), err
}

func (l *local) kernel(live invariant.Live) (invariant.Kernel, error) {
	return invariant.KernelOf(hostfs.Root("/"), live)
}
