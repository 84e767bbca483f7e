// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/internal/checkpoint"
	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime/hostdir"
)

// local is a node in this process, on a simulated machine. The benchmarks compare the time that the node takes with the
// time of the node's bare system calls.
type local struct {
	*node.Node
	machine *hostdir.Host
	files   *recorder
	kinds   []classes.Kind
}

// newLocal makes a node on a machine with cgroup v1 or v2, and applies a class file.
func newLocal(ctx context.Context, dir string, legacy bool, classFile string) (*local, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}

	machine, err := hostdir.New(dir, hostdir.Options{Legacy: legacy})
	if err != nil {
		return nil, err
	}

	files := &recorder{Root: hostfs.Root(dir)}
	tree, err := cgroup.Detect(files)
	if err != nil {
		return nil, err
	}

	log := slog.New(slog.DiscardHandler)
	kinds := config.Kinds(config.Host{FS: files, Tree: tree, Log: log})
	changes := checkpoint.Open(filepath.Join(dir, "changes.json"), "boot", log)
	n := node.New(node.Options{Kinds: kinds, Changes: changes, Log: log, HasCgroup: tree.Exists})
	l := &local{Node: n, machine: machine, files: files, kinds: kinds}
	return l, l.configure(ctx, classFile)
}

func (l *local) configure(ctx context.Context, classFile string) error {
	parsed, err := classes.Parse([]classes.File{{Name: "classes.yaml", Data: []byte(classFile)}}, l.kinds, nil)
	if err != nil {
		return err
	}
	return l.Configure(ctx, classes.FileSet{Config: parsed, Files: []string{"classes.yaml"}, Hash: classFile})
}

// limitClasses is the number of classes in limitsFile.
const limitClasses = 10

// limitClass returns the class of the n-th container.
func limitClass(n int) string { return fmt.Sprintf("class-%d", n%limitClasses) }

// limitOf returns the limit of a container in limitsFile(n), in operations a second and in thousands of bytes a second.
func limitOf(n, container int) int { return 1000*(n+1) + container%limitClasses }

// limitsFile returns a class file whose classes limit the disk. Each limit depends on `n`.
func limitsFile(n int) string {
	var file strings.Builder
	file.WriteString("apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n- name: k8s.io/blockio\n  blockio:\n    Classes:\n")
	for i := range limitClasses {
		limit := limitOf(n, i)
		fmt.Fprintf(&file, "      %s: [{Devices: [/dev/sda], ThrottleReadBps: %dk, ThrottleWriteBps: %dk, ThrottleReadIOPS: %d, ThrottleWriteIOPS: %d}]\n",
			limitClass(i), limit, limit, limit, limit)
	}
	return file.String()
}

// recorder is a host that records reads and writes of files. Its disk is a plain file.
type recorder struct {
	hostfs.Root

	mu        sync.Mutex // guards the fields below
	recording bool
	calls     []fileCall
}

// fileCall is a read of a file, or a write if `Data` is not nil.
type fileCall struct {
	Path string
	Data []byte
}

func (r *recorder) ReadFile(path string) ([]byte, error) {
	r.record(fileCall{Path: path})
	return r.Root.ReadFile(path)
}

func (r *recorder) WriteFile(path string, data []byte) error {
	r.record(fileCall{path, data})
	return r.Root.WriteFile(path, data)
}

// OpenForUpdate records each read and write of the open file like those of ReadFile and WriteFile.
func (r *recorder) OpenForUpdate(path string) (hostfs.File, error) {
	file, err := r.Root.OpenForUpdate(path)
	return recordedFile{file, r, path}, err
}

type recordedFile struct {
	hostfs.File
	host *recorder
	path string
}

func (f recordedFile) ReadAt(data []byte, offset int64) (int, error) {
	f.host.record(fileCall{Path: f.path})
	return f.File.ReadAt(data, offset)
}

func (f recordedFile) WriteAt(data []byte, offset int64) (int, error) {
	f.host.record(fileCall{f.path, data})
	return f.File.WriteAt(data, offset)
}

// BlockDevice returns the numbers of the disk.
func (r *recorder) BlockDevice(string) (major, minor uint32, err error) { return 8, 0, nil }

func (r *recorder) record(call fileCall) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recording {
		call.Path = filepath.Join(string(r.Root), call.Path)
		r.calls = append(r.calls, call)
	}
}

// recordDuring returns the reads and writes that are made while the function `do` runs.
func (r *recorder) recordDuring(do func()) []fileCall {
	r.set(true)
	do()
	r.set(false)

	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

func (r *recorder) set(recording bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recording = recording
}

// repeat makes the system calls of reads and writes, and nothing else.
func repeat(calls []fileCall) error {
	buffer := make([]byte, 4096)
	for _, call := range calls {
		if err := call.repeat(buffer); err != nil {
			return fmt.Errorf("%s: %w", call.Path, err)
		}
	}
	return nil
}

func (c fileCall) repeat(buffer []byte) error {
	flags := unix.O_RDONLY
	if c.Data != nil {
		flags = unix.O_WRONLY
	}

	fd, err := unix.Open(c.Path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}

	if c.Data != nil {
		_, err = unix.Write(fd, c.Data)
	} else {
		for n := 1; n > 0 && err == nil; { // the end of a file is a read of 0 bytes
			n, err = unix.Read(fd, buffer)
		}
	}

	if closeErr := unix.Close(fd); err == nil {
		err = closeErr
	}

	return err
}
