// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package uevent tells when devices of the machine come or go, by the kernel's own messages (kobject_uevent).
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

// kernelGroup is the multicast group of the kernel's messages; udev's own are in another one.
const kernelGroup = 1

// messageSize is more than the kernel sends in one message (UEVENT_BUFFER_SIZE is 2048).
const messageSize = 8 << 10

// Listener receives the messages from its beginning on. The kernel sends them to every network namespace of the host's user namespace,
// so that a pod of its own network gets them, too.
type Listener struct{ socket *os.File }

// Listen begins to receive.
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

// Follow calls changed for every message about devices of a subsystem, and when messages were lost. It ends with ctx, or when
// the kernel sends no more.
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
		case errors.Is(err, unix.ENOBUFS): // more than were read in time: something of it may have been for us
			changed()
		case err != nil:
			return fmt.Errorf("read the kernel's device events: %w", err)
		case isOf(message[:n], subsystem):
			changed()
		}
	}
}

// isOf reads a message: a headline like "add@/devices/…/block/vda", then NAME=VALUE, all ended by zeros.
func isOf(message []byte, subsystem string) bool {
	fields := bytes.Split(message, []byte{0})
	return bytes.Contains(fields[0], []byte("@/")) &&
		slices.ContainsFunc(fields[1:], func(field []byte) bool { return string(field) == "SUBSYSTEM="+subsystem })
}
