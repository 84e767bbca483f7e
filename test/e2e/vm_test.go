// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/qos-nri/qos-nri-plugin/test/child"
)

// machine is one configuration of the VM.
type machine struct {
	name   string
	test   string // test function of package invm
	vendor string // "intel" or "amd"
	cgroup string // "v1" or "v2"
	init   string // "systemd", or "" for a script
	// run and skip select cases by their names, like the flags of "go test". QOS_E2E_RUN overrides them.
	run, skip string
	// runtime is "cri-o", "containerd-2.3" or "containerd-2.2", or "" for the newest containerd.
	runtime string
	// linux is "7.3", "arm64" for Linux 7.3 on another CPU, or "" for the kernel of the other machines.
	linux string
	// crun is true if the machine has crun and runc.
	crun bool
	// resctrl has the options with which the test mounts resctrl.
	resctrl string
	// unmounted is true if the plugin has to mount resctrl.
	unmounted bool
	// nightly is true if the flag -short leaves the machine out, because it takes minutes and finds few faults that no other machine finds.
	nightly bool
	// disk has options of QEMU for the second disk, and cpus those for the CPUs.
	disk, cpus string
	// icount is QEMU's option of this name, if the results of the test depend on the speed of the CPUs.
	icount string
	// environment has further environment variables for the test program.
	environment []string
}

// hostPrograms returns the programs of the host that the machine needs: CRI-O starts conmon, and the cases about volumes make filesystems.
func (m machine) hostPrograms() []string {
	if m.runtime == "cri-o" {
		return []string{"/usr/bin/conmon"}
	}
	if m.name == "intel-disks" {
		return []string{"/sbin/mkfs.xfs", "/sbin/mkfs.btrfs", "/sbin/dmsetup"}
	}
	if m.test == "TestLab" {
		return []string{"/sbin/dmsetup"}
	}
	return nil
}

// diskCases are the cases of disks and volumes, which wait for I/O most of the time. A machine of their own runs them.
const diskCases = "volumes|disks|weights|latency|limit_that_holds"

// machines returns all configurations. The slowest come first, so that the last machines end at about the same time.
func machines() []machine {
	return []machine{
		{name: "intel-cgroupv2", test: "TestNode", vendor: "intel", cgroup: "v2", skip: diskCases},
		{name: "crio-intel", test: "TestNode", vendor: "intel", cgroup: "v2", runtime: "cri-o"},
		{name: "intel-disks", test: "TestNode", vendor: "intel", cgroup: "v2", run: diskCases},
		{name: "amd-cgroupv2", test: "TestNode", vendor: "amd", cgroup: "v2", unmounted: true},
		{name: "intel-blame", test: "TestBlame", vendor: "intel", cgroup: "v2", nightly: true, icount: "shift=2", environment: []string{
			"null_blk.queue_mode=2", "null_blk.submit_queues=1", "null_blk.hw_queue_depth=1", "null_blk.irqmode=2", // a disk that makes one
			"null_blk.completion_nsec=10000000", "null_blk.gb=1", // operation at a time, in 10 ms
		}},
		{name: "intel-soak", test: "TestInvariantsHoldDuringASoak", vendor: "intel", cgroup: "v2", nightly: true},
		{name: "intel-cgroupv1", test: "TestNode", vendor: "intel", cgroup: "v1", nightly: true},
		{name: "containerd-2.3", test: "TestNode", vendor: "intel", cgroup: "v2", runtime: "containerd-2.3", crun: true, nightly: true},
		{name: "intel-systemd", test: "TestSystemd", vendor: "intel", cgroup: "v2", init: "systemd"},
		{name: "crio-amd", test: "TestNode", vendor: "amd", cgroup: "v2", runtime: "cri-o", crun: true, nightly: true},
		{name: "containerd-2.2", test: "TestNode", vendor: "intel", cgroup: "v2", runtime: "containerd-2.2", nightly: true},
		{name: "crio-systemd", test: "TestSystemd", vendor: "intel", cgroup: "v2", init: "systemd", runtime: "cri-o", nightly: true},
		{name: "intel-simulation", test: "TestSimulation", vendor: "intel", cgroup: "v2"},
		{name: "intel-simulation-cdp", test: "TestSimulation", vendor: "intel", cgroup: "v1", resctrl: "cdp"},
		{name: "intel-simulation-mbps", test: "TestSimulation", vendor: "intel", cgroup: "v1", resctrl: "mba_MBps"},
		{name: "amd-linux-7.3", test: "TestLinux73", vendor: "amd", cgroup: "v2", linux: "7.3"},
		{name: "intel-linux-7.3", test: "TestLinux73", vendor: "intel", cgroup: "v2", linux: "7.3", environment: []string{"rdt=energy,perf"}},
		{name: "amd-many-containers", test: "TestManyContainers", vendor: "amd", cgroup: "v2", linux: "7.3", environment: []string{"rdt_emu.evict=1"}},
		{name: "intel-many-containers", test: "TestManyContainers", vendor: "intel", cgroup: "v2", linux: "7.3",
			environment: []string{"rdt=energy,perf", "rdt_emu.telemetry_rmids=12", "rdt_emu.evict=1"}},
		{name: "intel-snc", test: "TestSubNUMA", vendor: "intel", cgroup: "v2", linux: "7.3", cpus: "4,sockets=2,cores=2", environment: []string{"rdt_emu.snc=2"}},
		{name: "arm64-mpam", test: "TestArm", linux: "arm64", nightly: true},
		{name: "amd-simulation", test: "TestSimulation", vendor: "amd", cgroup: "v2"},
	}
}

func (m machine) containerRuntime() string { return cmp.Or(m.runtime, "containerd") }

// These limits end a run that hangs. A run takes some minutes on two cores, and three times as long if they are busy.
const (
	insideTimeout = 39 * time.Minute // then the test program in the VM ends, and reports where it hangs
	runTimeout    = 40 * time.Minute // for the VM
	bootTimeout   = 4 * time.Minute  // from the start of QEMU to the start of the test program
	bootAttempts  = 3                // if the VM gets too little CPU time, its kernel can fail to set up the devices
)

// TestVM boots each machine once. In the machine, the tests of package invm run, and TestVM reports them as its own subtests. A machine
// waits a third of its time and uses one CPU otherwise, so one machine more than this host has CPUs runs at a time. The flag -short leaves
// out the machines that run each night.
//
// The environment variables QOS_E2E_KERNEL, QOS_E2E_KERNEL_7_3 and QOS_E2E_KERNEL_ARM64 are the paths of prebuilt kernels. QOS_E2E_RUN
// selects the tests in the machine, like the flag -run. With the flag -artifacts, the logs are kept.
func TestVM(t *testing.T) {
	rig := prepare(t)
	// The group starts the machines in the order of the list. t.Parallel would not.
	var group errgroup.Group
	group.SetLimit(runtime.NumCPU() + 1)
	for _, m := range machines() {
		group.Go(func() error {
			t.Run(m.name, func(t *testing.T) { rig.test(t, m) })
			return nil
		})
	}
	must(t, group.Wait())
}

func (r *rig) test(t *testing.T, m machine) {
	if m.nightly && testing.Short() {
		t.Skip("this machine runs without -short, each night")
	}
	if len(r.runtimes[m.containerRuntime()]) == 0 {
		t.Skip("CRI-O is not built: its source is not at the Go module proxy, and QOS_E2E_CRIO_SOURCE does not name it")
	}
	if r.kernels[m.linux] == "" {
		t.Skip("Linux " + m.linux + " is not built: this distribution lacks its source, and QOS_E2E_KERNEL_7_3 or _ARM64 does not name a kernel")
	}
	r.boot(t, m)
}

// boot runs the tests in a machine, and reports their results as subtests of `t`.
func (r *rig) boot(t *testing.T, m machine) {
	dir := t.ArtifactDir()
	logs := filepath.Join(r.share, "logs", m.name)
	must(t, os.MkdirAll(logs, 0o755))
	if m.linux == "arm64" {
		r.buildForArm(t, filepath.Join(dir, "root"))
	} else {
		must(t, os.Symlink(r.share, filepath.Join(dir, "share")))
		r.linkPrograms(t, filepath.Join(dir, "programs"), m.containerRuntime())
	}
	if m.crun {
		must(t, os.Symlink(r.crun, filepath.Join(dir, "root")))
	}

	results := r.run(t, m, dir)
	results.replay(t, m.test)
	keepLogs(t, logs, dir)
	if t.Failed() {
		printTails(t, dir)
	}
}

// run boots a machine, and returns the report of its test program. If the test program does not begin, run boots the
// machine again.
func (r *rig) run(t *testing.T, m machine, dir string) *report {
	var err error
	for range bootAttempts {
		var results *report
		if results, err = r.try(t, m, dir); results.has(m.test) {
			if err != nil {
				t.Errorf("run the VM: %v", err)
			}
			return results
		}
		t.Logf("the VM has not booted: %v", err)
	}

	printTails(t, dir)
	t.Fatalf("the VM has not booted in %d attempts: %v", bootAttempts, err)
	return nil
}

// try boots a VM once, and returns the report of its test program. It also copies the output of the tests to standard output.
func (r *rig) try(t *testing.T, m machine, dir string) (*report, error) {
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	booting := time.AfterFunc(bootTimeout, cancel)
	defer booting.Stop()

	environment := []string{"QOS_LOGS=/share/logs/" + m.name, "QOS_TEST=" + m.test, "QOS_RESCTRL=" + m.resctrl, "QOS_RUNTIME=" + m.runtime}
	environment = append(environment, m.environment...)
	if os.Getenv("QOS_E2E_RUN") == "" {
		environment = append(environment, "QOS_RUN="+m.run, "QOS_SKIP="+m.skip)
	}
	if m.unmounted {
		environment = append(environment, "QOS_UNMOUNTED=yes")
	}

	for name, nightly := range map[string]string{
		"QOS_SOAK_MINUTES": "", "QOS_SOAK_SEED": "", "QOS_LAB_SECONDS": "", "QOS_CHANGES": "300", "QOS_KILLS": "100", "QOS_RESIZES": "100", "QOS_DRAWS": "",
		"QOS_DRAWS_SEED": "",
	} {
		if testing.Short() {
			nightly = ""
		}
		if value := cmp.Or(os.Getenv(name), nightly); value != "" {
			environment = append(environment, name+"="+value)
		}
	}

	boot, args := "test/e2e/vm/boot.sh", append([]string{dir, m.vendor}, environment...)
	if m.linux == "arm64" {
		boot, args = "test/e2e/vm/boot-arm64.sh", append([]string{dir, "QOS_E2E_RUN=" + os.Getenv("QOS_E2E_RUN")}, environment...)
	}
	vm := child.CommandContext(ctx, t, filepath.Join(r.source, boot), args...)
	vm.Env = append(os.Environ(), "QOS_CGROUP="+m.cgroup, "QOS_INIT="+m.init, "KERNEL="+r.kernels[m.linux], "QOS_VDB="+m.disk, "QOS_SMP="+m.cpus, "QOS_ICOUNT="+cmp.Or(os.Getenv("QOS_ICOUNT"), m.icount))
	vm.Env = append(vm.Env, "QOS_HOST_PROGRAMS="+strings.Join(m.hostPrograms(), " "))
	var diagnostics bytes.Buffer
	vm.Stderr = &diagnostics
	converter := child.Command(t, r.test2json)
	raw, err := vm.StdoutPipe()
	if err != nil {
		return &report{}, err
	}

	converter.Stdin = raw
	events, err := converter.StdoutPipe()
	if err != nil {
		return &report{}, err
	}

	if err := errors.Join(converter.Start(), vm.Start()); err != nil {
		return &report{}, err
	}

	results, err := readEvents(events, os.Stdout, m.name, func() { booting.Stop() })
	err = errors.Join(err, converter.Wait(), vm.Wait(), ctx.Err())
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, diagnostics.String())
	}

	return results, err
}

// keepLogs copies the logs of the programs in the VM from one directory to another, and removes other files there.
func keepLogs(t *testing.T, from, to string) {
	files, err := os.ReadDir(from)
	must(t, err)
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(from, file.Name()))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(to, file.Name()), data, 0o644))
	}
	for _, scratch := range []string{"share", "programs", "root", "initrd", "initrd.cpio", "dtb", "vda", "vdb"} {
		must(t, os.RemoveAll(filepath.Join(to, scratch)))
	}
}

// printTails shows the end of every log.
func printTails(t *testing.T, dir string) {
	const lines = 60
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	must(t, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(t, err)
		all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
		t.Logf("the end of %s:\n%s", filepath.Base(file), strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
