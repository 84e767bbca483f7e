// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package mountinfo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const rootMount = "28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n"

var parsedRoot = Mount{
	Major: 8, Minor: 1, Root: "/", Point: "/", Options: "rw,relatime", SuperOptions: "rw,errors=remount-ro", Type: "ext4", Source: "/dev/sda1",
}

// file is the content of mountinfo.
type file string

func (f file) ReadFile(string) ([]byte, error) { return []byte(f), nil }

func mounts(text string) (all []Mount, err error) {
	err = Read(file(text), File(1), NodeLimit, func(m Mount) { all = append(all, m) })
	return all, err
}

// TestMountsAreReadInTheirOrder also has escaped characters and an empty source. A backslash that begins no escape of the kernel stays.
func TestMountsAreReadInTheirOrder(t *testing.T) {
	const text = rootMount +
		"30 28 0:26 / /sys/fs/cgroup rw,nosuid shared:9 master:2 - cgroup2 cgroup2 rw,nsdelegate\n" +
		"31 28 0:50 /sub\\040dir /mnt/a\\011b\\134c\\012\\043\\303\\266 ro - nfs4 server:/x\\040y rw,addr=10.0.0.1\n" +
		"32 28 0:51 / /empty rw - tmpfs  rw\n" +
		"33 28 0:52 / /bad\\9\\04 rw - tmpfs \\ rw"
	want := []Mount{
		parsedRoot,
		{Minor: 26, Root: "/", Point: "/sys/fs/cgroup", Options: "rw,nosuid", SuperOptions: "rw,nsdelegate", Type: "cgroup2", Source: "cgroup2"},
		{Minor: 50, Root: "/sub dir", Point: "/mnt/a\tb\\c\n#ö", Options: "ro", SuperOptions: "rw,addr=10.0.0.1", Type: "nfs4", Source: "server:/x y"},
		{Minor: 51, Root: "/", Point: "/empty", Options: "rw", SuperOptions: "rw", Type: "tmpfs"},
		{Minor: 52, Root: "/", Point: `/bad\9\04`, Options: "rw", SuperOptions: "rw", Type: "tmpfs", Source: `\`},
	}
	got, err := mounts(text)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("(-want +got):\n%s%v", diff, err)
	}
}

func TestALineThatIsNoMountIsSkipped(t *testing.T) {
	for _, line := range []string{
		"", "x", "28 1 8:1 / / rw", "28 1 8:1 / / - ext4 /dev/sda1 rw", "28 1 8:1 / / rw - ext4", "28 1 8 / / rw - ext4 /dev/sda1 rw",
		"28 1 8:x / / rw - ext4 /dev/sda1 rw", "28 1 8:4294967296 / / rw - ext4 /dev/sda1 rw", strings.Repeat("x", 1<<20),
	} {
		got, err := mounts(line + "\n" + rootMount)
		if diff := cmp.Diff([]Mount{parsedRoot}, got); err != nil || diff != "" {
			t.Errorf("%.40q (-want +got):\n%s%v", line, diff, err)
		}
	}
}

// TestLongFieldsAreCut has paths of up to 200 directories, whose names are 255 blanks. A path is cut at maxPath bytes; the fields
// and lines after it are read.
func TestLongFieldsAreCut(t *testing.T) {
	for levels := range 200 {
		long := strings.Repeat("/"+strings.Repeat(`\040`, 255), levels)
		got, err := mounts("900 28 8:1 " + long + "/a /mnt" + long + " rw - ext4 /dev/sda1 rw\n" + rootMount)
		if err != nil || len(got) != 2 || got[0].Type != "ext4" || got[0].Source != "/dev/sda1" || got[1] != parsedRoot {
			t.Fatalf("%d levels: %.300v, %v", levels, got, err)
		}
		path := strings.ReplaceAll(long, `\040`, " ")
		if want := (path + "/a")[:min(len(path)+2, maxPath)]; got[0].Root != want {
			t.Errorf("%d levels: the root has %d bytes, want %d", levels, len(got[0].Root), len(want))
		}
		if want := ("/mnt" + path)[:min(len(path)+4, maxPath)]; got[0].Point != want {
			t.Errorf("%d levels: the mount point has %d bytes, want %d", levels, len(got[0].Point), len(want))
		}
	}
}

// TestALimitEndsTheReadAndNamesTheLongestLine has a line of about 1,000 bytes, and 101 lines of 72. With the limit of 2,000 bytes,
// the long line and about 12 others are read.
func TestALimitEndsTheReadAndNamesTheLongestLine(t *testing.T) {
	long := "900 28 8:1 " + strings.Repeat("/"+strings.Repeat("x", 255), 4) + " /theirs rw - ext4 /dev/sda1 rw\n"
	var points []string
	err := Read(file(rootMount+long+strings.Repeat(rootMount, 100)), File(1), 2000, func(m Mount) { points = append(points, m.Point) })
	longest := fmt.Sprintf(`the line of "/theirs" has %d bytes`, len(long))
	if !errors.Is(err, ErrTooLarge) || !strings.HasPrefix(err.Error(), "read /proc/1/mountinfo: ") || !strings.HasSuffix(err.Error(), longest) {
		t.Errorf("got %v, want the longest line: %s", err, longest)
	}
	if len(points) < 3 || len(points) > 20 || points[0] != "/" || points[1] != "/theirs" {
		t.Errorf("read %q before the error", points)
	}
}

func TestAFileThatIsAsLargeAsTheLimitIsRead(t *testing.T) {
	if err := Read(file(rootMount), File(1), int64(len(rootMount)), func(Mount) {}); err != nil {
		t.Error(err)
	}
}

// endless is a file that has one line without an end. It can only be read in parts.
type endless struct{ read int64 }

func (*endless) ReadFile(string) ([]byte, error) { panic("the whole file was read") }

func (e *endless) Open(string) (io.ReadCloser, error) { return io.NopCloser(e), nil }

func (e *endless) Read(data []byte) (int, error) {
	for i := range data {
		data[i] = 'x'
	}
	e.read += int64(len(data))
	return len(data), nil
}

func TestALineWithoutAnEndTakesLittleMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var e endless
	err := Read(&e, File(10), NodeLimit, func(Mount) { t.Error("the line is a mount") })
	runtime.ReadMemStats(&after)

	if !errors.Is(err, ErrTooLarge) || e.read > NodeLimit+maxField {
		t.Errorf("%d bytes were read, error %v", e.read, err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("%d bytes were allocated", used)
	}
}

func TestTheMountsBeforeAReadErrorAreReturned(t *testing.T) {
	broken := errors.New("broken")
	var got []Mount
	err := read(io.MultiReader(strings.NewReader(rootMount), errorReader{broken}), NodeLimit, func(m Mount) { got = append(got, m) })
	if diff := cmp.Diff([]Mount{parsedRoot}, got); !errors.Is(err, broken) || diff != "" {
		t.Errorf("(-want +got):\n%s%v", diff, err)
	}
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

// TestTheMountsOfThisProcessAreRead reads the mounts that the kernel shows.
func TestTheMountsOfThisProcessAreRead(t *testing.T) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Skip("there is no /proc:", err)
	}
	got, err := mounts(string(data))
	if lines := strings.Count(string(data), "\n"); err != nil || len(got) != lines {
		t.Errorf("%d of %d lines are mounts, %v", len(got), lines, err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(rootMount, int64(10))
	f.Add("900 28 8:1 "+strings.Repeat("/"+strings.Repeat(`\040`, 255), 70)+" /a rw - ext4 /dev/sda1 rw", int64(1<<20))
	f.Fuzz(func(t *testing.T, text string, limit int64) {
		count := 0
		err := Read(file(text), File(1), limit&0xffff, func(m Mount) {
			count++
			if len(m.Root) > maxPath || len(m.Point) > maxPath {
				t.Errorf("%.300v", m)
			}
		})
		if err != nil && !errors.Is(err, ErrTooLarge) || count > strings.Count(text, "\n")+1 {
			t.Errorf("%d mounts, %v", count, err)
		}
	})
}
