// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// TestAFileThatWasReadStaysOpenForTheWrite puts another file at the path between the read and the write. The write changes the file that
// was read. A write does not truncate, so it replaces only the beginning of the content.
func TestAFileThatWasReadStaysOpenForTheWrite(t *testing.T) {
	root := host(t, map[string]string{"/sys/a": "8:0 100\n", "/sys/b": "of b"})
	kept, end := iocgroup.KeepOpen(root)
	if data, err := kept.ReadFile("/sys/a"); string(data) != "8:0 100\n" || err != nil {
		t.Fatalf("got %q, %v", data, err)
	}

	must(t, errors.Join(root.Rename("/sys/a", "/sys/first"), root.Rename("/sys/b", "/sys/a")))
	must(t, kept.WriteFile("/sys/a", []byte("8:0 2")))
	if data, err := kept.ReadFile("/sys/a"); string(data) != "8:0 200\n" || err != nil {
		t.Errorf("got %q, %v after the write, which must not truncate the file", data, err)
	}
	root.wantFile(t, "/sys/first", "8:0 200\n")
	root.wantFile(t, "/sys/a", "of b")

	// After `end`, a write opens the file that is at the path.
	must(t, errors.Join(end(), kept.WriteFile("/sys/a", []byte("my"))))
	root.wantFile(t, "/sys/a", "my b")
}

func TestAFileThatIsKeptOpenIsReadToItsEnd(t *testing.T) {
	for _, size := range []int{0, 1, 511, 512, 513, 100_000} {
		want := strings.Repeat("x", size)
		kept, end := iocgroup.KeepOpen(host(t, map[string]string{"/sys/a": want}))
		if data, err := kept.ReadFile("/sys/a"); string(data) != want || err != nil {
			t.Errorf("got %d bytes, %v; want %d", len(data), err, size)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}

func TestErrorsOfAKeptFileHaveTheErrnoAndThePath(t *testing.T) {
	kept, end := iocgroup.KeepOpen(Root("/"))
	_, openErr := kept.ReadFile("/sys/none")
	_, readErr := kept.ReadFile("/proc/self/mem") // nothing is mapped at its beginning
	writeErr := kept.WriteFile("/proc/self/mem", []byte("x"))
	for _, test := range []struct {
		err   error
		errno syscall.Errno
		op    string
	}{{openErr, syscall.ENOENT, "open"}, {readErr, syscall.EIO, "read"}, {writeErr, syscall.EIO, "write"}} {
		var of *fs.PathError
		if !errors.As(test.err, &of) || !errors.Is(of, test.errno) || of.Op != test.op || of.Path == "" {
			t.Errorf("got %v, want %s and %v", test.err, test.op, test.errno)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}
