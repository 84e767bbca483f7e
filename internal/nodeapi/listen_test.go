// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

var quiet = slog.New(slog.DiscardHandler)

// rootOnly has the allowed clients of a socket that has no group.
var rootOnly = peers{uid: uint32(os.Geteuid())}

func group(gid int) peers { return peers{uid: uint32(os.Geteuid()), gid: uint32(gid), hasGroup: true} }

// must fails the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustListen(t *testing.T, path string, allowed peers) net.Listener {
	t.Helper()
	listener, err := listen(t.Context(), path, allowed, quiet)
	must(t, err)
	return listener
}

func mustClose(t *testing.T, listener net.Listener) {
	t.Helper()
	must(t, listener.Close())
}

// wantFile compares the mode of a file and, unless `gid` is -1, its group.
func wantFile(t *testing.T, path string, mode fs.FileMode, gid int) {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode().Perm() != mode || gid >= 0 && int(stat.Gid) != gid {
		t.Errorf("%s has mode %o and group %d, want %o and %d", path, info.Mode().Perm(), stat.Gid, mode, gid)
	}
}

func TestTheSocketIsForItsOwnerOnlyAndIsRemovedAtTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "qos.sock")
	listener := mustListen(t, path, rootOnly)
	wantFile(t, path, 0o600, -1)
	wantFile(t, filepath.Dir(path), 0o750, -1)
	mustClose(t, listener)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is not removed at the end: %v", err)
	}
}

func TestTheSocketAndItsDirectoryAreForTheGroup(t *testing.T) {
	gid := os.Getegid()
	if os.Geteuid() == 0 {
		gid = 4321 // root may give a file to any group, and this one is not the default
	}
	path := filepath.Join(t.TempDir(), "new", "qos.sock")
	listener := mustListen(t, path, group(gid))
	defer mustClose(t, listener)
	wantFile(t, path, 0o660, gid)
	wantFile(t, filepath.Dir(path), 0o750, gid)
}

func TestADirectoryThatOthersCanEnterIsNotChanged(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	listener := mustListen(t, filepath.Join(dir, "qos.sock"), group(os.Getegid()))
	defer mustClose(t, listener)
	wantFile(t, dir, 0o755, os.Getegid())
}

func TestADirectoryThatTheGroupCannotEnterIsLogged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "closed")
	must(t, os.Mkdir(dir, 0o700))
	var log strings.Builder
	listener, err := listen(t.Context(), filepath.Join(dir, "qos.sock"), group(os.Getegid()), slog.New(slog.NewTextHandler(&log, nil)))
	must(t, err)
	defer mustClose(t, listener)
	if !strings.Contains(log.String(), "cannot enter the directory") || !strings.Contains(log.String(), dir) {
		t.Errorf("log is %q", log.String())
	}
}

func TestAStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "qos.sock")
	dead := mustListen(t, path, rootOnly)
	unix, ok := dead.(*net.UnixListener)
	if !ok {
		t.Fatalf("listener is a %T", dead)
	}
	unix.SetUnlinkOnClose(false)
	mustClose(t, dead)
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("the test has no stale socket: %v", err)
	}
	mustClose(t, mustListen(t, path, rootOnly))
}

func TestListenRefusesPathsThatCannotBeUsedAndChangesNothing(t *testing.T) {
	dir := t.TempDir()
	live := filepath.Join(dir, "live.sock")
	listener := mustListen(t, live, rootOnly)
	defer mustClose(t, listener)
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, []byte("precious"), 0o600))

	for _, test := range []struct{ name, path, says string }{
		{"the socket of a live process", live, "another process already serves this socket"},
		{"what is not a socket", file, "the path exists and is not a socket"},
		{"a path that is too long for the kernel", filepath.Join(dir, strings.Repeat("x", 108)), "the kernel accepts 107"},
		{"a directory that cannot be made", filepath.Join(file, "qos.sock"), "not a directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := listen(t.Context(), test.path, rootOnly, quiet)
			if err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), test.path) {
				t.Errorf("error is %v, want one with %q and the path", err, test.says)
			}
		})
	}

	if _, err := listen(t.Context(), live, rootOnly, quiet); !errors.Is(err, errInUse) {
		t.Errorf("error is %v, want errInUse", err)
	}

	if data, err := os.ReadFile(file); err != nil || string(data) != "precious" {
		t.Errorf("the file was changed: %q, %v", data, err)
	}

	if conn, err := net.Dial("unix", live); err != nil {
		t.Errorf("the live socket was changed: %v", err)
	} else if err := conn.Close(); err != nil {
		t.Error(err)
	}
}
