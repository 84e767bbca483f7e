// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostfs reads and writes the host's files below a root directory, in the way that kernel filesystems require.
package hostfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Root is the directory that contains the host's /sys, /dev and /proc. The methods of Root take paths as they are on the host.
type Root string

// path converts a path on the host to a path of this process. As on the host, ".." does not lead out of the root directory.
func (r Root) path(path string) string {
	if !filepath.IsAbs(path) {
		path = "/" + path
	}
	if mayBeUnclean(path) {
		path = filepath.Clean(path)
	}
	return r.prefix() + path
}

// mayBeUnclean reports whether filepath.Clean may change an absolute path. It is faster than filepath.Clean.
func mayBeUnclean(path string) bool {
	return strings.HasSuffix(path, "/") || strings.Contains(path, "//") || strings.Contains(path, "/.")
}

// maxFile is the maximum size of a file that ReadFile reads. A container can make some files of the kernel large, e.g.
// the list of its threads. A list of a million threads is smaller.
const maxFile = 8 << 20

// ReadFile returns the content of a file with only the system calls open, read and close. Because cgroup files can be
// polled, os.ReadFile would also add each cgroup file to the poller of the Go runtime (epoll). If the file is larger
// than maxFile, the error wraps EFBIG.
func (r Root) ReadFile(path string) ([]byte, error) {
	fd, err := r.open(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}

	data, err := readAll(fd, strings.HasPrefix(path, "/sys/"))
	if err != nil {
		err = &fs.PathError{Op: "read", Path: r.path(path), Err: err}
	}
	return data, errors.Join(err, unix.Close(fd))
}

// readAll returns the content of a file. Most files are short, so it first reads into memory on the stack. In /sys, a read that does not
// fill this memory has reached the end of the file: there, the kernel makes the content at once, or in parts of a few bytes that fill a
// page. In /proc, a part can be longer than a page. A read then returns only the parts before it (seq_read_iter in fs/seq_file.c), so
// readAll reads until a read returns nothing.
func readAll(fd int, inSys bool) ([]byte, error) {
	var short [512]byte
	for length := 0; length < len(short); {
		n, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, short[length:]) })
		if length += max(n, 0); n <= 0 || err != nil || inSys && length < len(short) {
			return bytes.Clone(short[:length]), err
		}
	}

	data := append(make([]byte, 0, 2*len(short)), short[:]...)
	for {
		n, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, data[len(data):cap(data)]) })
		if n <= 0 || err != nil {
			return data, err
		}
		if data = data[:len(data)+n]; len(data) > maxFile {
			return nil, unix.EFBIG
		}
		if len(data) == cap(data) {
			data = slices.Grow(data, len(data))
		}
	}
}

// Open opens a file that is too large for ReadFile, or of which only the beginning is needed. The caller must close it.
func (r Root) Open(path string) (io.ReadCloser, error) {
	fd, err := r.open(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return &file{fd, r.path(path)}, nil
}

// File is a file that is open for reads and writes.
type File = interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// OpenForUpdate opens an existing file for reads and writes of a kernel file. The caller must close it. Each ReadAt and WriteAt is one
// system call. ReadAt returns io.EOF if it reads less than was asked for. Like WriteFile, WriteAt does not truncate the file.
func (r Root) OpenForUpdate(path string) (File, error) {
	fd, err := r.open(path, unix.O_RDWR)
	if err != nil {
		return nil, err
	}
	return &file{fd, r.path(path)}, nil
}

// file is an open file. Like ReadFile, it does not use the poller of the Go runtime.
type file struct {
	fd   int
	path string
}

func (f *file) Read(data []byte) (int, error) {
	n, err := ignoringEINTR(func() (int, error) { return unix.Read(f.fd, data) })
	switch {
	case err != nil:
		return 0, &fs.PathError{Op: "read", Path: f.path, Err: err}
	case n == 0 && len(data) > 0:
		return 0, io.EOF
	}
	return n, nil
}

func (f *file) ReadAt(data []byte, offset int64) (int, error) {
	n, err := ignoringEINTR(func() (int, error) { return unix.Pread(f.fd, data, offset) })
	switch {
	case err != nil:
		return 0, &fs.PathError{Op: "read", Path: f.path, Err: err}
	case n < len(data):
		return n, io.EOF
	}
	return n, nil
}

func (f *file) WriteAt(data []byte, offset int64) (int, error) {
	n, err := ignoringEINTR(func() (int, error) { return unix.Pwrite(f.fd, data, offset) })
	return n, writeError(f.path, n, len(data), err)
}

func (f *file) Close() error { return unix.Close(f.fd) }

// Exists returns false if a file does not exist. If another error occurs, it returns true.
func (r Root) Exists(path string) bool {
	_, err := r.call(unix.SYS_FACCESSAT, path, unix.F_OK)
	return !errors.Is(err, fs.ErrNotExist)
}

// WriteFile writes data to an existing file with one write(2), as kernel files require. It neither creates nor
// truncates the file. If only a part of the data is written, WriteFile fails. Errors wrap the kernel's errno.
func (r Root) WriteFile(path string, data []byte) error {
	fd, err := r.open(path, unix.O_WRONLY)
	if err != nil {
		return err
	}

	n, err := ignoringEINTR(func() (int, error) { return unix.Write(fd, data) })
	return errors.Join(writeError(r.path(path), n, len(data), err), unix.Close(fd))
}

// writeError returns the error of a write that has written `n` bytes. If it has written only a part, this is an error as well.
func writeError(path string, n, length int, err error) error {
	if err == nil && n != length {
		err = fmt.Errorf("wrote %d of %d bytes", n, length)
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

func (r Root) open(path string, flags int) (fd int, err error) {
	fd, err = r.call(unix.SYS_OPENAT, path, flags|unix.O_CLOEXEC|unix.O_LARGEFILE)
	if err != nil {
		return 0, &fs.PathError{Op: "open", Path: r.path(path), Err: err}
	}
	return fd, nil
}

// call makes a system call with a path. It makes the path on the stack: the plugin opens so many files that their paths would be a large
// part of its garbage.
func (r Root) call(number uintptr, path string, argument int) (int, error) {
	if strings.ContainsRune(path, 0) {
		return 0, unix.EINVAL
	}
	if !filepath.IsAbs(path) || mayBeUnclean(path) {
		path = r.path(path)[len(r.prefix()):]
	}
	var short [512]byte
	text := append(append(append(short[:0], r.prefix()...), path...), 0)
	cwd := unix.AT_FDCWD
	return ignoringEINTR(func() (int, error) {
		result, _, errno := unix.Syscall6(number, uintptr(cwd), uintptr(unsafe.Pointer(&text[0])), uintptr(argument), 0, 0, 0)
		if errno != 0 {
			return 0, errno
		}
		return int(result), nil
	})
}

func (r Root) prefix() string { return strings.TrimSuffix(string(r), "/") }

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// Mkdir creates one directory.
func (r Root) Mkdir(path string) error { return os.Mkdir(r.path(path), 0o755) }

// Remove removes a file, an empty directory, or the directory of a resctrl group. The kernel removes the files of such a
// group.
func (r Root) Remove(path string) error { return os.Remove(r.path(path)) }

// Rename moves a file or directory.
func (r Root) Rename(from, to string) error { return os.Rename(r.path(from), r.path(to)) }

// Readlink returns the target of a symbolic link.
func (r Root) Readlink(path string) (string, error) { return os.Readlink(r.path(path)) }

// ReadDir returns the names of the entries of a directory, sorted.
func (r Root) ReadDir(path string) ([]string, error) {
	dir, err := os.Open(r.path(path))
	if err != nil {
		return nil, err
	}

	names, err := dir.Readdirnames(-1)
	slices.Sort(names)
	return names, errors.Join(err, dir.Close())
}

// Subdirs returns the names of the subdirectories of a directory, sorted.
func (r Root) Subdirs(path string) ([]string, error) {
	path = r.path(path)
	var stat unix.Stat_t
	// In most filesystems, such as those of cgroups, a directory has one link for each subdirectory, and two others.
	// In other filesystems, it has one link.
	if unix.Stat(path, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR && stat.Nlink == 2 {
		return nil, nil
	}
	entries, err := os.ReadDir(path)
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, err
}

// Glob returns the paths on the host that match a pattern, sorted.
func (r Root) Glob(pattern string) ([]string, error) {
	matches, err := filepath.Glob(r.path(pattern))
	for i, match := range matches {
		rel, relErr := filepath.Rel(string(r), match)
		if relErr != nil {
			return nil, relErr
		}
		matches[i] = filepath.Join("/", rel)
	}
	return matches, err
}

// BlockDevice returns the device numbers of a block device. The error for other files is ENOTBLK.
func (r Root) BlockDevice(path string) (major, minor uint32, err error) {
	info, err := os.Stat(r.path(path))
	if err != nil {
		return 0, 0, err
	}

	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, 0, &fs.PathError{Op: "stat", Path: path, Err: unix.ENOTBLK}
	}
	return unix.Major(stat.Rdev), unix.Minor(stat.Rdev), nil
}

// IOPriority returns the I/O priority of a process in the PID namespace of this program (ioprio_get(2)).
func (Root) IOPriority(pid int) (int, error) {
	const process = 1 // IOPRIO_WHO_PROCESS
	priority, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, process, uintptr(pid), 0)
	if errno != 0 {
		return 0, os.NewSyscallError("ioprio_get", errno)
	}
	return int(priority), nil
}

// Mount mounts a filesystem that has no device.
func (r Root) Mount(source, target, fstype, options string) error {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount(source, r.path(target), fstype, flags, options); err != nil {
		return &fs.PathError{Op: "mount " + fstype, Path: target, Err: err}
	}
	return nil
}
