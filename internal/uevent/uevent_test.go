// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package uevent

import (
	"context"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// newListener returns a listener, and the other end of its socket. Tests write to the other end in place of the kernel.
func newListener(t *testing.T) (l *Listener, kernel *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	kernel = os.NewFile(uintptr(fds[1]), "kernel")
	t.Cleanup(func() { _ = kernel.Close() })
	return &Listener{socket: os.NewFile(uintptr(fds[0]), "listener")}, kernel
}

func TestMessagesOfTheSubsystemAreReported(t *testing.T) {
	l, kernel := newListener(t)
	for _, message := range []string{
		"add@/devices/virtual/net/veth0\x00ACTION=add\x00SUBSYSTEM=net\x00",
		"libudev\x00SUBSYSTEM=block\x00", // udev's own messages have another form
		"SUBSYSTEM=block",
		"\x00",
		"add@/devices/pci0000:00/0000:00:05.0/virtio2/block/vdc\x00ACTION=add\x00DEVNAME=vdc\x00SUBSYSTEM=block\x00SEQNUM=1\x00",
		"remove@/devices/pci0000:00/0000:00:05.0/virtio2/block/vdc\x00SUBSYSTEM=block\x00",
	} {
		if _, err := kernel.WriteString(message); err != nil {
			t.Fatal(err)
		}
	}

	if err := kernel.Close(); err != nil {
		t.Fatal(err)
	}
	// Follow reads all messages, and then finds the end of the socket.
	calls := 0
	if err := l.Follow(t.Context(), "block", func() { calls++ }); err == nil || calls != 2 {
		t.Errorf("%d messages are reported, want 2; the error is %v, want one for the end of the socket", calls, err)
	}
}

func TestAContextEndsTheWaitForMessages(t *testing.T) {
	l, _ := newListener(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Follow(ctx, "block", func() {}) }()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestASocketThatEndsIsAnError(t *testing.T) {
	l, kernel := newListener(t)
	if err := kernel.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Follow(t.Context(), "block", func() {}); err == nil {
		t.Error("Follow returned no error after the socket ended")
	}
}

func TestListenNeedsNoPrivileges(t *testing.T) {
	l, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Follow(ctx, "block", func() {}); err != nil {
		t.Error(err)
	}
}
