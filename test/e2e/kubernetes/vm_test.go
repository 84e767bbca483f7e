// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/e2e/remote"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

// bridge is the address of this machine in the network of a VM. The VM uses it to connect to the API server's service. This machine uses
// the network to connect to the pods in the VM.
const bridge = "192.0.2.254"

// vm is a VM with its own kernel, with resctrl. Package remote runs programs there.
type vm struct {
	address               // the address of its node
	dir, bin, logs string // the directories of the VM's files, of the programs, and of the logs of the whole rig
	rig            string // the directory of the whole rig, which the VM sees at the same path
	vendor         string // "intel" or "amd"
	init           string // "systemd", or "" for a script
	resctrl        string // mount options
	qemu           *process
	client         *remote.Client
}

// inVM lists the programs in the VM: those of a node, and those that the tests need there.
var inVM = []string{"agent", "kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "runc", "qos-nri-plugin", "csidriver"}

// runAgent is the script that the VM runs. The value of GOGC saves CPU time and costs memory. Without systemd, the
// programs of the node are in a cgroup of their own: in the root cgroup, each of their threads would get more of a busy
// CPU than all pods together.
const runAgent = `#!/bin/sh
export PATH=/opt:/usr/sbin:/usr/bin:$PATH GOGC=400
if [ "$QOS_INIT" != systemd ]; then
  echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
  mkdir /sys/fs/cgroup/system
  echo $$ >/sys/fs/cgroup/system/cgroup.procs
  echo 20 >/sys/fs/cgroup/system/cpu.weight
fi
exec agent
`

// begin boots the VM with a new disk for the data of containerd and the kubelet.
func (v *vm) begin(t *testing.T, n *node) {
	t.Helper()
	v.address = n.address
	programs := filepath.Join(v.dir, "programs")
	must(t, os.MkdirAll(programs, 0o755))
	for _, name := range inVM {
		must(t, os.Symlink(filepath.Join(v.bin, name), filepath.Join(programs, name)))
	}

	here, err := os.Getwd()
	must(t, err)
	must(t, os.Symlink(filepath.Join(here, "cni.sh"), filepath.Join(programs, "cni.sh")))
	must(t, os.Symlink(v.rig, filepath.Join(v.dir, "share")))
	must(t, os.WriteFile(filepath.Join(v.rig, "run"), []byte(runAgent), 0o755))
	v.makeDisk(t, n)
	for _, args := range [][]string{
		{"ip", "tuntap", "add", v.tap(), "mode", "tap"},
		{"ip", "address", "add", bridge + "/32", "dev", v.tap()},
		{"ip", "link", "set", v.tap(), "up"},
		{"ip", "route", "add", v.ip, "dev", v.tap(), "src", bridge},
		{"ip", "route", "add", v.pods + ".0.0/16", "via", v.ip},
	} {
		mustRun(t, args...)
	}

	v.boot(t)
}

// tap is the network device of this machine that is connected to the VM.
func (v *vm) tap() string { return "tap-" + v.name }

// makeDisk makes the VM's disk with the unpacked images. The images are unpacked on this machine, because unpacking
// would take minutes in the VM.
func (v *vm) makeDisk(t *testing.T, n *node) {
	t.Helper()
	tree := filepath.Join(v.dir, "tree")
	must(t, os.MkdirAll(filepath.Join(tree, "kubelet"), 0o755))
	unpackImages(t, n, filepath.Join(tree, "containerd"))
	disk := filepath.Join(v.dir, "vda")
	mustRun(t, "truncate", "-s", "2G", disk)
	mustRun(t, "mkfs.ext4", "-q", "-d", tree, disk)
	must(t, os.RemoveAll(tree))
}

// boot starts QEMU, and then makes the mounts and settings that a reboot loses.
func (v *vm) boot(t *testing.T) {
	t.Helper()
	v.qemu = &process{
		name: "vm", log: filepath.Join(v.logs, "vm.log"),
		// The timer is periodic, so the kernel of the VM sets it only once. With highres and nohz, the kernel would set the
		// timer again and again, which on an emulated CPU takes a fifth of the CPU time of the node's programs.
		args: []string{"../vm/boot.sh", v.dir, v.vendor, "highres=off", "nohz=off", "ip=" + v.ip + "::" + bridge + ":255.255.255.0:" + v.name + ":eth0:off"},
		env: []string{
			"QOS_INIT=" + v.init, "QOS_NIC=tap,ifname=" + v.tap() + ",script=no,downscript=no,model=virtio-net-pci",
			"QOS_SMP=1", // QEMU emulates all CPUs in one thread of the host, so a second CPU would not help
			"QOS_HOST_PROGRAMS=/usr/sbin/ip /usr/bin/flock /usr/sbin/mkfs.ext4 /usr/sbin/resize2fs", "KERNEL=" + filepath.Join(v.bin, "KERNEL"),
		},
	}

	v.qemu.mustStart(t)
	until(t, "the VM has booted", func() (bool, string) {
		if !v.qemu.running() {
			t.Fatal("QEMU has ended; see vm.log")
		}
		var err error
		if v.client, err = remote.Dial(t.Context(), v.ip+":7000"); err != nil {
			return false, err.Error()
		}
		output, err := v.run("hostname")
		return err == nil, output
	})

	options := "nosuid"
	if v.resctrl != "" {
		options += "," + v.resctrl
	}

	for _, args := range [][]string{
		{"mkdir", "-p", v.rig, "/mnt", "/var/lib/kubelet", "/var/lib/containerd", staticPods, "/run/cni", "/run/bin"},
		{"mount", "--bind", "/share", v.rig},
		{"mount", "-t", "ext4", "/dev/vda", "/mnt"},
		{"mkdir", "-p", "/mnt/kubelet", "/mnt/containerd"},
		{"mount", "--bind", "/mnt/kubelet", "/var/lib/kubelet"},
		{"mount", "--bind", "/mnt/containerd", "/var/lib/containerd"},
		{"mount", "-t", "resctrl", "-o", options, "resctrl", "/sys/fs/resctrl"},
		{"mount", "--make-rshared", "/"},
		{"ln", "-sfn", "/run", "/var/run"},
		{"sysctl", "-w", "net.ipv4.ip_forward=1"},
	} {
		v.mustRun(t, args...)
	}
}

func (v *vm) mustRun(t *testing.T, args ...string) string {
	t.Helper()
	output, err := v.run(args...)
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, output)
	}
	return output
}

// off switches the VM off without a shutdown: it writes the disk's cache, and ends no program.
func (v *vm) off(t *testing.T) {
	t.Helper()
	v.mustRun(t, "sync")
	_ = v.client.Close()
	must(t, v.qemu.end(syscall.SIGTERM))
}

// pause stops the VM until the returned function is called, or until the test ends.
func (v *vm) pause(t *testing.T) (resume func()) {
	t.Helper()
	send := func(signal syscall.Signal) { must(t, v.qemu.command.Process.Signal(signal)) }
	send(syscall.SIGSTOP)
	resume = func() { send(syscall.SIGCONT) }
	t.Cleanup(resume)
	return resume
}

// end also ends a VM that has not booted, or that does not answer. It removes the network device, because later tests create it again.
func (v *vm) end(t *testing.T, _ *node) {
	t.Helper()
	if v.qemu != nil {
		must(t, v.qemu.end(syscall.SIGKILL))
	}
	_, _ = (&local{}).run("ip", "link", "del", v.tap())
	must(t, os.RemoveAll(v.dir))
}

func (v *vm) node() settings {
	driver, memory := "cgroupfs", "featureGates: {MemoryQoS: true}\nmemoryThrottlingFactor: 0.9"
	if v.init != "" {
		driver, memory = v.init, "featureGates: {MemoryQoS: false}"
	}

	return settings{
		cgroupRoot: "/", cgroupDriver: driver, memory: memory, statusFrequency: "10s", syncFrequency: "20s", ociRuntime: v.path("runc"), cni: "/opt", resources: []string{"blockio", "rdt"},
		// The emulated machine is slow. After these timeouts, the runtime would continue without the plugin.
		nri: "plugin_registration_timeout = \"60s\"\nplugin_request_timeout = \"60s\"",
		// After a timeout, containerd tries again, and doubles the time until the next attempt.
		timeouts: `"io.containerd.timeout.shim.cleanup" = "60s"
"io.containerd.timeout.shim.load" = "60s"
"io.containerd.timeout.shim.shutdown" = "60s"
"io.containerd.timeout.task.state" = "60s"`,
	}
}

func (v *vm) path(program string) string { return "/opt/" + program }

func (v *vm) run(args ...string) (string, error) { return v.client.Run(args...) }

func (v *vm) kill(commandLine string) error { return v.client.Kill(commandLine) }

func (v *vm) dial(ctx context.Context, socket string) (net.Conn, error) {
	return v.client.DialSocket(ctx, socket)
}

func (v *vm) cgroup(id string) (string, error) {
	output, err := v.run("find", cgroupRoot, "-type", "d", "-name", "*"+id+"*")
	found := strings.Fields(output)
	if err == nil && (id == "" || len(found) != 1) {
		err = fmt.Errorf("container %q has cgroups %q", id, found)
	}
	if err != nil {
		return "", err
	}
	return strings.TrimPrefix(found[0], cgroupRoot), nil
}

func (v *vm) kernel(live invariant.Live) (invariant.Kernel, error) { return v.client.Kernel(live) }

// remoteProgram is a program of the VM.
type remoteProgram struct {
	*vm
	remote.Program
}

// program gives the kubelet a lower CPU priority than containerd. Otherwise the kubelet would slow down containerd's
// deletions, and containerd starts a deletion again after 10 s.
func (v *vm) program(name string, args ...string) program {
	if name == "kubelet" {
		args = append([]string{"sh", "-c", `renice -n 10 $$ && exec "$@"`, "sh"}, args...)
	}
	return remoteProgram{vm: v, Program: remote.Program{Name: name, Args: args, Log: filepath.Join(v.logs, name+".log")}}
}

func (p remoteProgram) mustStart(t *testing.T) {
	t.Helper()
	must(t, p.client.Start(p.Program))
}

func (p remoteProgram) mustEnd(t *testing.T, signal syscall.Signal) {
	t.Helper()
	must(t, p.client.End(remote.Signal{Program: p.Name, Signal: signal}))
}
