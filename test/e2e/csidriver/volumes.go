// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// volumes are files in a directory. The kubelet repeats calls, so each method succeeds if there is nothing left to do.
type volumes struct {
	dir string
	mu  sync.Mutex // held while a file is attached or detached
}

func (v *volumes) file(id string) string { return filepath.Join(v.dir, filepath.Base(id)) }

// smallest is the size of the file that a node makes for a volume that the driver of another node has created.
const smallest = 16 << 20

// grow creates the file of a volume, or enlarges a file that is smaller than the given size. A larger file keeps its size.
func (v *volumes) grow(id string, size int64) error {
	file, err := os.OpenFile(v.file(id), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() >= size {
		return err
	}
	return file.Truncate(size)
}

// most returns the largest size that a volume may have. Tests write it into the file fail.VOLUME. Without the file,
// there is no limit.
func (v *volumes) most(id string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(v.dir, "fail."+filepath.Base(id)))
	if errors.Is(err, fs.ErrNotExist) {
		return math.MaxInt64, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// unlock checks the key of a volume. Tests write the right key into the file key.VOLUME. Without the file, the volume
// needs no key.
func (v *volumes) unlock(id, key string) error {
	want, err := os.ReadFile(filepath.Join(v.dir, "key."+filepath.Base(id)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case key == "":
		return status.Error(codes.InvalidArgument, "the request has no key")
	case key != string(want):
		return status.Error(codes.Unauthenticated, "the key is wrong")
	}
	return nil
}

// checkOffline returns an error if the volume is attached and the file offline.VOLUME exists. Tests write this file for
// a volume that can be expanded only offline.
func (v *volumes) checkOffline(id string) error {
	if _, err := os.Stat(filepath.Join(v.dir, "offline."+filepath.Base(id))); err != nil {
		return nil
	}
	device, err := v.device(id)
	if err == nil && device != "" {
		return status.Errorf(codes.FailedPrecondition, "volume %s is in use, and is expanded only offline", id)
	}
	return err
}

// modify writes the attributes of a volume.
func (v *volumes) modify(id, iops string) error {
	return os.WriteFile(filepath.Join(v.dir, "attributes."+filepath.Base(id)), []byte("iops="+iops), 0o600)
}

// remove deletes the file of a volume. It refuses a volume that is attached.
func (v *volumes) remove(id string) error {
	device, err := v.device(id)
	if err != nil {
		return err
	}
	if device != "" {
		return status.Errorf(codes.FailedPrecondition, "volume %s is attached to %s", id, device)
	}
	if err := os.Remove(v.file(id)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// attach attaches a volume to a loop device, unless it is attached already, and returns the device.
func (v *volumes) attach(ctx context.Context, id string) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if device, err := v.device(id); err != nil || device != "" {
		return device, err
	}
	if err := execute(ctx, "losetup", "-f", v.file(id)); err != nil {
		return "", err
	}
	return v.device(id)
}

func (v *volumes) detach(ctx context.Context, id string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	device, err := v.device(id)
	if err != nil || device == "" {
		return err
	}
	return execute(ctx, "losetup", "-d", device)
}

// device returns the loop device to which a volume is attached, or "" if there is none.
func (v *volumes) device(id string) (string, error) {
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return "", err
	}
	for _, file := range backing {
		text, err := os.ReadFile(file)
		if err == nil && strings.TrimSpace(string(text)) == v.file(id) {
			return filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(file)))), nil
		}
	}
	return "", nil
}

// format makes a filesystem in a new volume, whose file has no data yet.
func (v *volumes) format(ctx context.Context, id string) error {
	info, err := os.Stat(v.file(id))
	if err != nil {
		return err
	}
	if info.Sys().(*syscall.Stat_t).Blocks > 0 {
		return nil
	}
	return execute(ctx, "mkfs.ext4", "-q", v.file(id))
}

func execute(ctx context.Context, args ...string) error {
	output, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, output)
	}
	return nil
}
