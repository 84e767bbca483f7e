// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// maxGroups is the largest number of groups that a process can have (NGROUPS_MAX).
const maxGroups = 65536

// peers describes the processes that may use the API: those whose user is root or the server's own user, and those that
// have the configured group as primary or supplementary group.
type peers struct {
	uid, gid uint32
	hasGroup bool
}

func allowedPeers(group string) (peers, error) {
	allowed := peers{uid: uint32(os.Geteuid())}
	if group == "" {
		return allowed, nil
	}

	gid, err := strconv.ParseUint(group, 10, 32)
	if err != nil {
		var named *user.Group
		if named, err = user.LookupGroup(group); err == nil {
			gid, err = strconv.ParseUint(named.Gid, 10, 32)
		}
	}
	if err != nil {
		return peers{}, fmt.Errorf("find the group of the node API: %w; if the group exists only on the host, pass its number instead of its name", err)
	}
	allowed.gid, allowed.hasGroup = uint32(gid), true
	return allowed, nil
}

func (p peers) allow(client process) bool {
	if client.uid == 0 || client.uid == p.uid {
		return true
	}
	return p.hasGroup && (client.gid == p.gid || slices.Contains(client.groups, p.gid))
}

func (p peers) check(ctx context.Context) error {
	switch client, known := clientOf(ctx); {
	case !known:
		return status.Error(codes.PermissionDenied, "the kernel does not report the user of this connection")
	case !p.allow(client):
		return status.Errorf(codes.PermissionDenied,
			"user %d may not use this socket of the node API; "+
				"run the client as root, or as a member of the group in qos-nri-plugin's --api-socket-group or --api-read-socket-group", client.uid)
	}
	return nil
}

func (p peers) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := p.check(ctx); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (p peers) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := p.check(ss.Context()); err != nil {
		return err
	}
	return handler(srv, ss)
}

// clientOf returns the process that sends a request.
func clientOf(ctx context.Context) (client process, known bool) {
	if from, connected := peer.FromContext(ctx); connected {
		client, known = from.AuthInfo.(process)
	}
	return client, known
}

// process describes the process that opened a connection, as the kernel reports it.
type process struct {
	uid, gid uint32
	groups   []uint32
}

func (process) AuthType() string { return "peercred" }

// peerCredentials identifies the client process of each connection of a unix socket. It sends nothing over the connection.
type peerCredentials struct {
	credentials.TransportCredentials
}

// ServerHandshake reads the client's process from the kernel.
func (peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	client, err := processOf(conn)
	return conn, client, err
}

func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

func processOf(conn net.Conn) (client process, err error) {
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return process{}, errors.New("not a unix socket")
	}
	control, err := raw.SyscallConn()
	if err != nil {
		return process{}, err
	}

	var readErr error
	err = control.Control(func(fd uintptr) { client, readErr = credentialsOf(int(fd)) })
	return client, errors.Join(err, readErr)
}

func credentialsOf(fd int) (process, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return process{}, fmt.Errorf("read the user of a connection: %w", err)
	}
	groups, err := peerGroups(fd)
	if err != nil {
		return process{}, fmt.Errorf("read the groups of a connection: %w", err)
	}
	return process{uid: cred.Uid, gid: cred.Gid, groups: groups}, nil
}

// peerGroups returns the supplementary groups that a peer had when it connected (socket(7), SO_PEERGROUPS).
func peerGroups(fd int) ([]uint32, error) {
	var length uint32
	err := getGroups(fd, nil, &length)
	if err == nil || !errors.Is(err, unix.ERANGE) {
		return nil, err
	}

	groups := make([]uint32, min(length/4, maxGroups))
	if err := getGroups(fd, groups, &length); err != nil {
		return nil, err
	}
	return groups[:length/4], nil
}

// getGroups calls getsockopt(2) for SO_PEERGROUPS, for which x/sys/unix has no function. It sets length to the number
// of bytes that the groups need.
func getGroups(fd int, groups []uint32, length *uint32) error {
	*length = uint32(len(groups) * 4)

	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(unsafe.SliceData(groups))), uintptr(unsafe.Pointer(length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
