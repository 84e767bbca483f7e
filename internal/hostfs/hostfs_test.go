// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// host creates a root directory with the given files. The keys of the map are their paths, and the values are their
// content.
func host(t *testing.T, files map[string]string) Root {
	t.Helper()
	root := t.TempDir()
	for name, data := range files {
		full := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		must(t, os.WriteFile(full, []byte(data), 0o600))
	}
	return Root(root)
}

// must fails the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r Root) wantFile(t *testing.T, name, want string) {
	t.Helper()
	if got, err := r.ReadFile(name); err != nil || string(got) != want {
		t.Errorf("%s has %q, %v; want %q", name, got, err, want)
	}
}

func TestNoPathLeavesTheRoot(t *testing.T) {
	top := host(t, map[string]string{"/secret": "hunter2", "/host/a": "of the host"})
	root := Root(filepath.Join(string(top), "host"))
	if data, err := root.ReadFile("/../secret"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file outside of the root has %q, %v; want ErrNotExist", data, err)
	}
	root.wantFile(t, "/../a", "of the host")
	root.wantFile(t, "../a", "of the host")
}

func TestFilesAreReadToTheirEnd(t *testing.T) {
	for _, size := range []int{0, 1, 511, 512, 513, 1024, 100_000} {
		want := strings.Repeat("x", size)
		host(t, map[string]string{"/sys/a": want}).wantFile(t, "/sys/a", want)
	}
}

func TestAPathMayBeLongAndHasNoNUL(t *testing.T) {
	long := strings.Repeat("/"+strings.Repeat("d", 200), 4)
	root := host(t, map[string]string{long: "x", "/sys/a": "y"})
	root.wantFile(t, long, "x")
	if data, err := root.ReadFile("/sys/a\x00b"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("got %q, %v; want EINVAL", data, err)
	}
}

func TestAFileThatIsTooLargeIsNotRead(t *testing.T) {
	root := host(t, map[string]string{"/max": strings.Repeat("x", maxFile), "/larger": strings.Repeat("x", maxFile+1)})
	if data, err := root.ReadFile("/max"); err != nil || len(data) != maxFile {
		t.Errorf("read %d bytes, %v", len(data), err)
	}
	var pathErr *fs.PathError
	if data, err := root.ReadFile("/larger"); !errors.Is(err, syscall.EFBIG) || !errors.As(err, &pathErr) || data != nil {
		t.Errorf("read %d bytes, %v, want EFBIG", len(data), err)
	}
	if _, err := Root("/").ReadFile("/dev/zero"); !errors.Is(err, syscall.EFBIG) { // the read ends at maxFile
		t.Errorf("a file without an end: %v, want EFBIG", err)
	}
}

// TestOpenReadsAFileOfAnySize: ReadFile refuses this file, as TestAFileThatIsTooLargeIsNotRead shows.
func TestOpenReadsAFileOfAnySize(t *testing.T) {
	root := host(t, map[string]string{"/larger": strings.Repeat("x", maxFile+1)})
	file, err := root.Open("/larger")
	must(t, err)
	if n, err := io.Copy(io.Discard, file); err != nil || n != maxFile+1 {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	if _, err := file.Read(make([]byte, 1)); !errors.Is(err, syscall.EBADF) {
		t.Errorf("a read after Close: %v, want EBADF", err)
	}
	if _, err := root.Open("/missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of a missing file returned %v, want ErrNotExist", err)
	}
}

func TestAWriteNeitherCreatesNorTruncates(t *testing.T) {
	root := host(t, map[string]string{"/sys/a": "long before"})
	must(t, root.WriteFile("/sys/a", []byte("new")))
	root.wantFile(t, "/sys/a", "newg before")
	if err := root.WriteFile("/sys/b", []byte("new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a write to a missing file returned %v, want ErrNotExist", err)
	}
	if _, err := root.ReadFile("/sys/b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("WriteFile created the file: %v", err)
	}
}

func TestARefusedReadOrWriteKeepsTheErrno(t *testing.T) {
	if _, err := Root("/").ReadFile("/proc/self/mem"); !errors.Is(err, syscall.EIO) { // nothing is mapped at its beginning
		t.Errorf("a read of unmapped memory returned %v, want EIO", err)
	}
	var pathErr *fs.PathError
	err := Root("/").WriteFile("/dev/full", []byte("x"))
	if !errors.Is(err, syscall.ENOSPC) || !errors.As(err, &pathErr) || pathErr.Path != "/dev/full" {
		t.Errorf("a write to /dev/full returned %v, want ENOSPC with the path", err)
	}
	if err := host(t, nil).WriteFile("/", []byte("x")); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("a write to a directory returned %v, want EISDIR", err)
	}
}

func TestAnInterruptedWriteIsMadeAgain(t *testing.T) {
	tries := 0
	n, err := ignoringEINTR(func() (int, error) {
		tries++
		if tries < 3 {
			return -1, syscall.EINTR
		}
		return 7, nil
	})
	if n != 7 || err != nil || tries != 3 {
		t.Errorf("got %d, %v after %d tries", n, err, tries)
	}
}

func TestDirectoriesAreMadeListedMovedAndRemoved(t *testing.T) {
	root := host(t, map[string]string{"/sys/z": "", "/sys/a": ""})
	must(t, root.Mkdir("/sys/m"))

	if err := root.Mkdir("/sys/m"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Mkdir of an existing directory returned %v, want ErrExist", err)
	}

	must(t, root.Rename("/sys/m", "/sys/n"))

	if names, err := root.ReadDir("/sys"); err != nil || !slices.Equal(names, []string{"a", "n", "z"}) {
		t.Errorf("got %v, %v", names, err)
	}

	if err := root.Remove("/sys"); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("Remove of a directory with files returned %v, want ENOTEMPTY", err)
	}

	if err := root.Remove("/sys/n"); err != nil {
		t.Error(err)
	}

	if _, err := root.ReadDir("/sys/n"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestGlobReturnsPathsOfTheHost(t *testing.T) {
	root := host(t, map[string]string{"/dev/sdb": "", "/dev/sda": "", "/dev/sda1": "", "/dev/vda": ""})
	got, err := root.Glob("/dev/sd[a-z]")
	if err != nil || !slices.Equal(got, []string{"/dev/sda", "/dev/sdb"}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := Root("/").Glob("/dev/nul[l]"); err != nil || !slices.Equal(got, []string{"/dev/null"}) {
		t.Errorf("below the root /, got %v, %v", got, err)
	}
	if _, err := root.Glob("/dev/sd[a"); !errors.Is(err, filepath.ErrBadPattern) {
		t.Errorf("a pattern without its closing bracket returned %v, want ErrBadPattern", err)
	}
}

func TestASymlinkIsReadAndNotFollowed(t *testing.T) {
	root := host(t, map[string]string{"/dev/sda": ""})
	must(t, os.Symlink("/dev/sda", filepath.Join(string(root), "link")))
	if target, err := root.Readlink("/link"); err != nil || target != "/dev/sda" {
		t.Errorf("got %s, %v", target, err)
	}
	if _, err := root.Readlink("/dev/sda"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Readlink of a file that is no link returned %v, want EINVAL", err)
	}
}

func TestOnlyBlockDevicesHaveNumbers(t *testing.T) {
	root := host(t, map[string]string{"/dev/file": ""})
	for file, want := range map[string]error{"/dev/file": syscall.ENOTBLK, "/dev": syscall.ENOTBLK, "/dev/nothing": fs.ErrNotExist} {
		if _, _, err := root.BlockDevice(file); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", file, err, want)
		}
	}
	if _, _, err := Root("/").BlockDevice("/dev/null"); !errors.Is(err, syscall.ENOTBLK) {
		t.Errorf("BlockDevice of a character device returned %v, want ENOTBLK", err)
	}
}

func TestABlockDeviceHasItsNumbers(t *testing.T) {
	const node = "/dev/disk"
	root := host(t, map[string]string{"/dev/x": ""})
	if err := syscall.Mknod(filepath.Join(string(root), node), syscall.S_IFBLK|0o600, 254<<8|16); err != nil {
		t.Skipf("no block device can be made here: %v", err)
	}
	if major, minor, err := root.BlockDevice(node); err != nil || major != 254 || minor != 16 {
		t.Errorf("got %d:%d, %v", major, minor, err)
	}
}

func TestARefusedMountKeepsTheErrno(t *testing.T) {
	var errno syscall.Errno
	err := host(t, nil).Mount("none", "/", "no-such-filesystem", "")
	if !errors.As(err, &errno) {
		t.Errorf("the mount of an unknown filesystem returned %v, want an errno", err)
	}
}

func TestSubdirsReturnsOnlyDirectories(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "a"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}

	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))

	got, err := Root(dir).Subdirs("/")
	if err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %q, %v", got, err)
	}

	if got, err := Root(dir).Subdirs("/a"); err != nil || len(got) > 0 {
		t.Errorf("a directory without subdirectories has %q, %v", got, err)
	}
	if _, err := Root(dir).Subdirs("/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestExistsIsFalseOnlyIfTheKernelReturnsENOENT(t *testing.T) {
	root := host(t, map[string]string{"/sys/a": "x"})
	for name, want := range map[string]bool{"/sys/a": true, "/sys/b": false, "/sys": true, "/../sys/a": true} {
		if got := root.Exists(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if !root.Exists("/sys/a/b") { // access(2) fails with ENOTDIR, because /sys/a is a file
		t.Error("Exists returned false for ENOTDIR")
	}
}
