// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package uevent reports added, removed and changed devices. It reads the messages that the kernel sends about
// devices (kobject_uevent).
package uevent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// kernelGroup is the multicast group to which the kernel sends its messages. udev sends its messages to another group.
const kernelGroup = 1

// messageSize is larger than any message of the kernel, because the kernel's UEVENT_BUFFER_SIZE is 2048.
const messageSize = 8 << 10

// Listener receives the messages that the kernel sends after the Listener was created. A Listener also works in a pod
// without the host's network, because the kernel sends each message to all network namespaces that the host's user
// namespace owns.
type Listener struct{ socket *os.File }

// Listen creates a Listener.
func Listen() (*Listener, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("listen for the kernel's device events: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup}); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for the kernel's device events: %w", err), unix.Close(fd))
	}
	return &Listener{socket: os.NewFile(uintptr(fd), "uevents")}, nil
}

// Follow calls changed() for every message about a device of the subsystem, and when messages were lost. It returns
// when ctx ends or when reading fails.
func (l *Listener) Follow(ctx context.Context, subsystem string, changed func()) error {
	stop := context.AfterFunc(ctx, func() { _ = l.socket.Close() })
	defer func() {
		if stop() {
			_ = l.socket.Close()
		}
	}()

	message := make([]byte, messageSize)
	for {
		n, err := l.socket.Read(message)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS): // the kernel dropped messages
			changed()
		case err != nil:
			return fmt.Errorf("read the kernel's device events: %w", err)
		case isOf(message[:n], subsystem):
			changed()
		}
	}
}

// isOf reports whether a message is about a device of a subsystem. A message begins with a headline like
// "add@/devices/…/block/vda". Fields of the form NAME=VALUE follow. The headline and each field end with a zero byte.
func isOf(message []byte, subsystem string) bool {
	fields := bytes.Split(message, []byte{0})
	return bytes.Contains(fields[0], []byte("@/")) &&
		slices.ContainsFunc(fields[1:], func(field []byte) bool { return string(field) == "SUBSYSTEM="+subsystem })
}
