// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iocgroup

import (
	"bytes"
	"errors"
	"io"
)

// openFile is an existing file that is open for reading and writing.
type openFile = interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// opener is an FS that can keep a file open between a read, a write and another read. Each read or write is one system call.
type opener interface {
	OpenForUpdate(path string) (openFile, error)
}

// keeper is an FS that keeps open the files that it has read, because opening a file of a cgroup takes longer than
// reading or writing it. It is not safe for concurrent use.
type keeper struct {
	FS
	opener opener
	files  []keptFile
	buffer [512]byte
}

type keptFile struct {
	path string
	file openFile
}

// KeepOpen returns an FS for several reads and writes of the files of one cgroup. The caller must call `end`. If the host cannot keep
// files open, KeepOpen returns the host.
func KeepOpen(host FS) (kept FS, end func() error) {
	if opener, ok := host.(opener); ok {
		k := &keeper{FS: host, opener: opener}
		return k, k.close
	}
	return host, func() error { return nil }
}

// ReadFile reads a file with one system call if the buffer has room for the content. The kernel passes a file of a
// cgroup as one record, so a read that does not fill the buffer has reached the end of the file (seq_read_iter in
// fs/seq_file.c, and kernfs).
func (k *keeper) ReadFile(path string) ([]byte, error) {
	file, err := k.open(path)
	if err != nil {
		return k.FS.ReadFile(path) // a file that cannot be written is readable, and the write gets the error
	}
	n, err := file.ReadAt(k.buffer[:], 0)
	switch {
	case n == len(k.buffer):
		return k.FS.ReadFile(path) // the content may be longer
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	}
	return bytes.Clone(k.buffer[:n]), nil
}

func (k *keeper) open(path string) (openFile, error) {
	if file := k.kept(path); file != nil {
		return file, nil
	}
	file, err := k.opener.OpenForUpdate(path)
	if err == nil {
		k.files = append(k.files, keptFile{path, file})
	}
	return file, err
}

func (k *keeper) kept(path string) openFile {
	for _, one := range k.files {
		if one.path == path {
			return one.file
		}
	}
	return nil
}

// WriteFile implements FS.
func (k *keeper) WriteFile(path string, data []byte) error {
	if file := k.kept(path); file != nil {
		_, err := file.WriteAt(data, 0)
		return err
	}
	return k.FS.WriteFile(path, data)
}

func (k *keeper) close() error {
	var errs []error
	for _, one := range k.files {
		errs = append(errs, one.file.Close())
	}
	k.files = nil
	return errors.Join(errs...)
}
