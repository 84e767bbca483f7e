// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command firstprocess is the first process of the VM for arm64. It replaces busybox, because the packages of a
// distribution have busybox only for the distribution's CPU. It mounts the kernel's filesystems, runs /opt/invm.test
// on the console, and powers the VM off. Under the names sh and sleep, it does what the tests need of these programs.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func main() {
	switch filepath.Base(os.Args[0]) {
	case "sleep":
		for {
			_ = unix.Pause()
		}
	case "sh":
		if command := os.Args[min(3, len(os.Args)):]; len(command) > 0 { // test/stage: runs a command after it has read a line
			_, _ = fmt.Scanln()
			_ = unix.Exec("/init", command, os.Environ())
		}
		// test/child: kills its process group when its input ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = unix.Kill(0, unix.SIGKILL)
	default:
		if err := run(); err != nil {
			fmt.Fprintln(os.Stderr, "firstprocess:", err)
		}
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}
}

func run() error {
	for _, fs := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"}, {"cgroup2", "/sys/fs/cgroup"},
	} {
		if err := os.MkdirAll(fs.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(fs.kind, fs.at, fs.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", fs.at, err)
		}
	}

	console, err := os.OpenFile("/dev/console", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	state, err := unix.IoctlGetTermios(int(console.Fd()), unix.TCGETS)
	if err != nil {
		return err
	}
	state.Oflag &^= unix.OPOST // a line ends with a single byte
	if err := unix.IoctlSetTermios(int(console.Fd()), unix.TCSETS, state); err != nil {
		return err
	}

	tests := exec.Command("/opt/invm.test", "-test.v=test2json", "-test.run=^"+os.Getenv("QOS_TEST")+"$/"+os.Getenv("QOS_E2E_RUN"))
	tests.Env = append(os.Environ(), "PATH=/:/opt:/bin", "HOME=/tmp")
	tests.Dir, tests.Stdout, tests.Stderr = "/tmp", console, console
	return tests.Run()
}
