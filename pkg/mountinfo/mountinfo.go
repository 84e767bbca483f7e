// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mountinfo reads the mounts of a process from /proc/PID/mountinfo, line by line. A container can make lines of
// this file very long, and can add very many lines. So the package cuts long fields, and stops reading a file at a
// limit.
package mountinfo

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	// maxField is the maximum length of a field. Longer fields are cut. A path of PATH_MAX bytes is shorter, even if the
	// kernel escapes each of its bytes. So are the options of an overlay of 500 layers, the maximum of the kernel.
	maxField = 64 << 10
	// maxPath is the maximum length of a path. Longer paths are cut, because no program can open them (PATH_MAX).
	maxPath = 4 << 10
)

// These are limits for Read, in bytes.
const (
	// NodeLimit is the limit for the mounts of the node. A node with 1000 containers has about 1 MiB of mounts, or 10 MiB
	// if each of their images has 100 layers. The kernel needs about a second for 64 MiB.
	NodeLimit = 64 << 20
	// ContainerLimit is the limit for the mounts of a container. A container has a few KiB.
	ContainerLimit = 4 << 20
)

// ErrTooLarge means that a file is larger than the limit.
var ErrTooLarge = errors.New("the mounts are larger than the limit")

// Files is the part of the host's filesystem from which Read reads. Paths are paths on the host.
type Files interface {
	ReadFile(path string) ([]byte, error)
}

// opener is a Files that can read a part of a file.
type opener interface {
	Open(path string) (io.ReadCloser, error)
}

// Mount is a line of mountinfo (proc_pid_mountinfo(5)). Its paths have no escape sequences.
type Mount struct {
	Major, Minor uint32
	// Root is the directory of the filesystem that is mounted. Point is the directory at which it is mounted.
	Root, Point string
	// Options are the options of the mount. SuperOptions are those of the filesystem.
	Options, SuperOptions string
	Type, Source          string
}

// File returns the path of the file with the mounts of a process.
func File(pid int) string { return fmt.Sprintf("/proc/%d/mountinfo", pid) }

// Open opens a file. If the process has ended, the error is fs.ErrNotExist, or EINVAL if the process is a zombie
// (mounts_open_common in fs/proc_namespace.c).
func Open(files Files, file string) (io.ReadCloser, error) {
	if opener, ok := files.(opener); ok {
		return opener.Open(file)
	}
	data, err := files.ReadFile(file)
	return io.NopCloser(bytes.NewReader(data)), err
}

// Read passes the mounts in a file to `visit`, in the order of the file. It skips lines that are not mounts. If an
// error occurs, Read has passed the mounts before the error. The kernel lists mounts in the order in which they were
// made, so these are the oldest mounts. After `limit` bytes, the error is ErrTooLarge, and it names the mount with the
// longest line.
func Read(files Files, file string, limit int64, visit func(Mount)) error {
	in, err := Open(files, file)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // an error of Close loses nothing

	if err := read(in, limit, visit); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	return nil
}

func read(in io.Reader, limit int64, visit func(Mount)) error {
	lines := lineReader{in: bufio.NewReaderSize(io.LimitReader(in, limit+1), maxField)}
	var longest Mount
	length := int64(0)
	for {
		line, size, err := lines.next()
		if lines.read > limit {
			return fmt.Errorf("%w of %d bytes; the line of %.300q has %d bytes", ErrTooLarge, limit, longest.Point, length)
		}
		if m, ok := parse(line); ok {
			if visit(m); size > length {
				longest, length = m, size
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// lineReader reads lines, and cuts long fields.
type lineReader struct {
	in   *bufio.Reader
	read int64
	line []byte
}

// next returns a line, and the size that it has in the file.
func (r *lineReader) next() (line []byte, size int64, err error) {
	r.line = r.line[:0]
	field := 0
	for {
		chunk, err := r.in.ReadSlice('\n')
		size += int64(len(chunk))
		r.read += int64(len(chunk))
		field = r.add(chunk, field)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(r.line, []byte("\n")), size, err
		}
	}
}

// add adds a part of a line. Its first bytes belong to a field that already has `length` bytes. add returns the length of
// the last field.
func (r *lineReader) add(chunk []byte, length int) int {
	for {
		field, rest, more := bytes.Cut(chunk, []byte(" "))
		r.line = append(r.line, field[:min(len(field), max(0, maxField-length))]...)
		if !more {
			return length + len(field)
		}
		r.line = append(r.line, ' ')
		chunk, length = rest, 0
	}
}

// parse parses a line of the form "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue". There
// can be any number of fields before the "-".
func parse(line []byte) (m Mount, ok bool) {
	mount, filesystem, found := strings.Cut(string(line), " - ")
	fields, ofFilesystem := strings.Split(mount, " "), strings.SplitN(filesystem, " ", 3)
	if !found || len(fields) < 6 || len(ofFilesystem) < 3 {
		return m, false
	}

	major, minor, _ := strings.Cut(fields[2], ":")
	majorNumber, errMajor := strconv.ParseUint(major, 10, 32)
	minorNumber, errMinor := strconv.ParseUint(minor, 10, 32)
	return Mount{
		Major: uint32(majorNumber), Minor: uint32(minorNumber), Root: unescape(fields[3]), Point: unescape(fields[4]), Options: fields[5],
		Type: unescape(ofFilesystem[0]), Source: unescape(ofFilesystem[1]), SuperOptions: ofFilesystem[2],
	}, errors.Join(errMajor, errMinor) == nil
}

// unescape replaces the escape sequences of the kernel, e.g. "\040" for a blank (mangle_path in fs/seq_file.c).
func unescape(text string) string {
	var plain strings.Builder
	for plain.Len() < maxPath {
		before, after, found := strings.Cut(text, `\`)
		plain.WriteString(before)
		if !found {
			break
		}
		text = after
		if code, err := strconv.ParseUint(text[:min(3, len(text))], 8, 8); err == nil && len(text) >= 3 {
			plain.WriteByte(byte(code))
			text = text[3:]
		} else {
			plain.WriteByte('\\')
		}
	}
	return plain.String()[:min(plain.Len(), maxPath)]
}
