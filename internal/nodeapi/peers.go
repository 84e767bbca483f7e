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

// maxGroups is how many groups a process can have (NGROUPS_MAX).
const maxGroups = 65536

// peers are the processes that may use the API: those of root, of the user that the server itself runs as, and of a
// group, whether it is the process's primary group or one of the others.
type peers struct {
	uid, gid uint32
	hasGroup bool
}

func allowedPeers(group string) (peers, error) {
	allowed := peers{uid: uint32(os.Geteuid())}
	if group == "" {
		return allowed, nil
	}
	number := group
	if _, err := strconv.ParseUint(group, 10, 32); err != nil {
		found, err := user.LookupGroup(group)
		if err != nil {
			return peers{}, fmt.Errorf("group of the node API: %w; use its number if it is a group of the host only", err)
		}
		number = found.Gid
	}
	gid, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return peers{}, fmt.Errorf("group of the node API: %w", err)
	}
	allowed.gid, allowed.hasGroup = uint32(gid), true
	return allowed, nil
}

func (p peers) allow(who process) bool {
	if who.uid == 0 || who.uid == p.uid {
		return true
	}
	return p.hasGroup && (who.gid == p.gid || slices.Contains(who.groups, p.gid))
}

func (p peers) check(ctx context.Context) error {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return status.Error(codes.PermissionDenied, "the kernel does not tell who asks")
	}
	who, ok := from.AuthInfo.(process)
	if !ok {
		return status.Error(codes.PermissionDenied, "the kernel does not tell who asks")
	}
	if !p.allow(who) {
		return status.Errorf(codes.PermissionDenied,
			"user %d may not use the node API; be root, or a member of the group that --api-socket-group of qos-nri-plugin names", who.uid)
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

// process is who the kernel says opened a connection.
type process struct {
	uid, gid uint32
	groups   []uint32
}

// AuthType is part of credentials.AuthInfo.
func (process) AuthType() string { return "peercred" }

// peerCredentials asks the kernel who is at the other end of a unix socket. Nothing of it goes over the connection.
type peerCredentials struct{}

// ServerHandshake notes who connected.
func (peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	who, err := processOf(conn)
	return conn, who, err
}

// ClientHandshake is for servers only.
func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("peer credentials are for servers")
}

// Info is part of credentials.TransportCredentials.
func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "peercred"}
}

// Clone is part of credentials.TransportCredentials.
func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName is part of credentials.TransportCredentials.
func (peerCredentials) OverrideServerName(string) error { return nil }

func processOf(conn net.Conn) (who process, err error) {
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return process{}, errors.New("not a unix socket")
	}
	control, err := raw.SyscallConn()
	if err != nil {
		return process{}, err
	}
	var asked error
	err = control.Control(func(fd uintptr) { who, asked = credentialsOf(int(fd)) })
	return who, errors.Join(err, asked)
}

func credentialsOf(fd int) (process, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return process{}, fmt.Errorf("ask the kernel who connected: %w", err)
	}
	groups, err := peerGroups(fd)
	if err != nil {
		return process{}, fmt.Errorf("ask the kernel for the groups of who connected: %w", err)
	}
	return process{uid: cred.Uid, gid: cred.Gid, groups: groups}, nil
}

// peerGroups returns the supplementary groups that a peer had when it connected (socket(7), SO_PEERGROUPS). The length
// is asked for first, with no room.
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

// getGroups is a getsockopt that x/sys/unix has no function for. length is in bytes, and set to what is needed.
func getGroups(fd int, groups []uint32, length *uint32) error {
	*length = uint32(len(groups) * 4)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(unsafe.SliceData(groups))), uintptr(unsafe.Pointer(length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
