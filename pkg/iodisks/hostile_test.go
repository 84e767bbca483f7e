// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iodisks

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/mountinfo"
	"github.com/qos-nri/qos-nri-plugin/test/child"
)

// hostileVariable is set in the environment of a process that runs mountManyTimes instead of tests.
const hostileVariable = "QOS_TEST_HOSTILE"

// mountManyTimes mounts a directory with a long path onto itself 300 times. The mountinfo of this process then has 36
// MB.
func mountManyTimes() error {
	if err := syscall.Mount("t", "/mnt", "tmpfs", 0, "size=64m"); err != nil {
		return fmt.Errorf("tmpfs: %w", err)
	}
	if err := os.Chdir("/mnt"); err != nil {
		return err
	}
	name := strings.Repeat(" ", 255) // the kernel shows a blank as \040
	for range 60 {
		if err := errors.Join(os.Mkdir(name, 0o755), os.Chdir(name)); err != nil {
			return err
		}
	}
	for range 300 {
		if err := syscall.Mount(".", ".", "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind: %w", err)
		}
	}
	return nil
}

func TestMain(m *testing.M) {
	if os.Getenv(hostileVariable) == "" {
		m.Run()
		return
	}
	result := "ready"
	if err := mountManyTimes(); err != nil {
		result = err.Error()
	}
	_, _ = fmt.Fprintln(os.Stdout, result)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test ends
}

// TestTheMountsOfAProcessTakeLittleMemory reads the mounts of a process that runs mountManyTimes. It needs no privilege for that,
// because it has a user namespace. The read must end at mountinfo.ContainerLimit.
func TestTheMountsOfAProcessTakeLittleMemory(t *testing.T) {
	tenant := child.Command(t, "/proc/self/exe")
	tenant.Env = append(os.Environ(), hostileVariable+"=1")
	tenant.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
	tenant.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	tenant.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	in, inErr := tenant.StdinPipe()
	out, err := tenant.StdoutPipe()
	if err := errors.Join(err, inErr); err != nil {
		t.Fatal(err)
	}
	if err := tenant.Start(); err != nil {
		t.Skip("there are no user namespaces:", err)
	}
	defer func() { _ = in.Close(); _ = tenant.Wait() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Skip("the process cannot mount:", line, err)
	}

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = NewFinder(hostfs.Root("/"), func(string, string) []string { return nil }).Find(
		classes.Holder{ID: "c1:/data", ContainerID: "c1", PodUID: "u1", Container: "main", Volume: "/data", PID: tenant.Process.Pid})
	runtime.ReadMemStats(&after)
	if !errors.Is(err, mountinfo.ErrTooLarge) {
		t.Errorf("got %.300v, want ErrTooLarge", err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 4*mountinfo.ContainerLimit {
		t.Errorf("%d bytes were allocated, want at most four times the limit", used)
	}
}
