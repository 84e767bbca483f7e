// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// machine is one configuration of the VM.
type machine struct {
	name   string
	test   string // of package invm
	vendor string // "intel" or "amd"
	cgroup string // "v1" or "v2"
	// resctrl are mount options for the test.
	resctrl string
}

func machines() []machine {
	return []machine{
		{name: "intel-simulation", test: "TestSimulation", vendor: "intel", cgroup: "v2"},
		{name: "intel-simulation-cdp", test: "TestSimulation", vendor: "intel", cgroup: "v1", resctrl: "cdp"},
		{name: "intel-simulation-mbps", test: "TestSimulation", vendor: "intel", cgroup: "v1", resctrl: "mba_MBps"},
		{name: "amd-simulation", test: "TestSimulation", vendor: "amd", cgroup: "v2"},
		{name: "intel-cgroupv2", test: "TestNode", vendor: "intel", cgroup: "v2"},
		{name: "amd-cgroupv2", test: "TestNode", vendor: "amd", cgroup: "v2"},
		{name: "intel-cgroupv1", test: "TestNode", vendor: "intel", cgroup: "v1"},
	}
}

// The limits are of a run that hangs: one takes some minutes on two cores that are shared with others.
const (
	insideTimeout = 14 * time.Minute // the test program in the VM reports where it hangs
	bootTimeout   = 15 * time.Minute // the VM itself hangs
)

// TestVM boots each machine once. The tests that run inside (package invm) show up as its subtests.
//
// QOS_E2E_KERNEL may name a prebuilt kernel, QOS_E2E_RUN selects cases inside as -run does; with -artifacts the logs are kept.
func TestVM(t *testing.T) {
	rig := prepare(t)
	for _, m := range machines() {
		t.Run(m.name, func(t *testing.T) { rig.boot(t, m) })
	}
}

// boot runs the tests inside of a machine and replays their results as subtests of t.
func (r *rig) boot(t *testing.T, m machine) {
	dir := t.ArtifactDir()
	logs := filepath.Join(r.share, "logs", m.name)
	must(t, os.MkdirAll(logs, 0o755))
	must(t, os.Symlink(r.share, filepath.Join(dir, "share")))

	ctx, cancel := context.WithTimeout(t.Context(), bootTimeout)
	defer cancel()
	vm := exec.CommandContext(ctx, filepath.Join(r.source, "test/e2e/vm/boot.sh"), dir, m.vendor,
		"QOS_LOGS=/share/logs/"+m.name, "QOS_TEST="+m.test, "QOS_RESCTRL="+m.resctrl)
	vm.Env = append(os.Environ(), "QOS_CGROUP="+m.cgroup, "KERNEL="+r.kernel)
	vm.Cancel = func() error { return vm.Process.Kill() } // boot.sh has become QEMU
	results, err := r.collect(vm, os.Stdout)
	if ctx.Err() != nil {
		err = fmt.Errorf("killed after %s", bootTimeout)
	}
	if err != nil {
		t.Errorf("run the VM: %v", err)
	}
	results.replay(t, m.test)
	keepLogs(t, logs, dir)
	if t.Failed() {
		printTails(t, dir)
	}
}

// collect runs a VM to its end and gathers what its tests report, which goes to live as well while it comes.
func (r *rig) collect(vm *exec.Cmd, live io.Writer) (*report, error) {
	converter := exec.Command(r.test2json, "-t")
	var diagnostics bytes.Buffer
	vm.Stderr = &diagnostics
	raw, err := vm.StdoutPipe()
	if err != nil {
		return nil, err
	}
	converter.Stdin = raw
	events, err := converter.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(converter.Start(), vm.Start()); err != nil {
		return nil, err
	}
	results, err := readEvents(events, live)
	err = errors.Join(err, converter.Wait(), vm.Wait())
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, diagnostics.String())
	}
	return results, err
}

// keepLogs moves what the programs inside logged beside the console's log.
func keepLogs(t *testing.T, from, to string) {
	files, err := os.ReadDir(from)
	must(t, err)
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(from, file.Name()))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(to, file.Name()), data, 0o644))
	}
	for _, scratch := range []string{"share", "initrd", "initrd.cpio", "vda", "vdb"} {
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
