// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/blockio"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
	"github.com/qos-nri/qos-nri-plugin/test/iotest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// home, followed by the name of a disk, is the directory of the disk in sysfs.
const home = "/sys/devices/virtual/block/"

func host() *simcgroup.Machine {
	m := iotest.AddLinks(iotest.AddDisks(simcgroup.New()))
	for name, rotational := range map[string]string{"sda": "0", "sdb": "1", "dm-0": "0"} {
		m.AddFile(home+name+"/size", "2000\n")
		m.AddFile(home+name+"/queue/rotational", rotational+"\n")
		m.AddFile(home+name+"/queue/nomerges", "0\n")
	}
	m.AddFile(home+"sda/device/model", "Fast  SSD   \n")
	m.AddFile(home+"sda/serial", "123\n")
	return m
}

// must fails the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func find(t *testing.T, m *simcgroup.Machine, name string) Disk {
	t.Helper()
	disk, err := Find(m, name)
	must(t, err)
	return disk
}

func TestADiskIsFoundByEachOfItsNames(t *testing.T) {
	m := host()
	want := Disk{Disk: iocgroup.Disk{Device: iocgroup.Device{Major: 8}, Name: "sda"}, Identity: iodisks.Identity{Model: "Fast SSD", Serial: "123"},
		Path: "/dev/disk/by-id/ata-SSD", Size: 1024000}
	for _, name := range []string{"/dev/sda", "/dev/disk/by-id/ata-SSD"} {
		if diff := cmp.Diff(want, find(t, m, name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestADiskIsDescribed(t *testing.T) {
	if got := find(t, host(), "/dev/sda").String(); got != "/dev/sda (8:0, 1.02 MB, model Fast SSD, serial number 123)" {
		t.Errorf("the disk is described as %s", got)
	}
}

func TestADiskWithoutALinkHasThePathOfItsName(t *testing.T) {
	if got := find(t, host(), "/dev/dm-0"); got.Path != "/dev/dm-0" || got.Rotational {
		t.Errorf("dm-0 is %+v, want the path /dev/dm-0, and no rotation", got)
	}
}

func TestAFileThatIsNoDiskIsRefused(t *testing.T) {
	for name, want := range map[string]string{
		"/dev/sda1": "/dev/sda1 is a partition, and the kernel's io controller works on whole disks; name the disk /dev/sda",
		"/dev/null": "/dev/null is not a disk; name one like /dev/sda: stat /dev/null: block device required",
		"/dev/sdz":  "find /dev/sdz: readlink /dev/sdz: no such file or directory",
	} {
		if _, err := Find(host(), name); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

func TestADiskInUseIsNotOverwritten(t *testing.T) {
	for _, test := range []struct {
		name string
		use  func(m *simcgroup.Machine)
		want string
	}{
		{"nothing", func(*simcgroup.Machine) {}, ""},
		{"a mounted disk", func(m *simcgroup.Machine) { m.Mount("41 28 8:0 / /data rw - ext4 /dev/sda rw") },
			"/dev/sda is in use: it is mounted at /data"},
		{"mounted partitions", func(m *simcgroup.Machine) {
			m.Mount("41 28 8:1 / / rw - ext4 /dev/sda1 rw")
			m.Mount("42 28 8:1 /pods /var/lib/kubelet/pods/1/volumes/x/y rw - ext4 /dev/sda1 rw")
		}, "/dev/sda is in use: it is mounted at /, /var/lib/kubelet/pods/1/volumes/x/y"},
		{"a filesystem on several disks", func(m *simcgroup.Machine) {
			m.Mount("41 28 0:44 / /data rw - btrfs /dev/sdb rw")
			m.AddSymlink("/sys/fs/btrfs/aa/devices/sdb", "../../../../devices/virtual/block/sdb")
			m.AddSymlink("/sys/fs/btrfs/aa/devices/sda1", "../../../../devices/virtual/block/sda/sda1")
		}, "/dev/sda is in use: it is mounted at /data"},
		{"swap", func(m *simcgroup.Machine) {
			m.AddFile("/proc/swaps", "Filename Type Size Used Priority\n/swap file 5 0 -2\n/dev/sda1 partition 5 0 -3\n")
		}, "/dev/sda is in use: sda1 is used for swap"},
		{"a volume group", func(m *simcgroup.Machine) { m.AddFile(home+"sda/sda1/holders/dm-0", "") }, "/dev/sda is in use: sda1 is a part of dm-0"},
		{"a RAID", func(m *simcgroup.Machine) { m.AddFile(home+"sda/holders/md0", "") }, "/dev/sda is in use: sda is a part of md0"},
		{"another disk", func(m *simcgroup.Machine) { m.Mount("41 28 8:16 / /data rw - ext4 /dev/sdb rw") }, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := host()
			test.use(m)
			err := CheckUnused(m, find(t, m, "/dev/sda"))
			if test.want == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
			} else if !errors.Is(err, ErrInUse) || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestADirectoryMustBeOnTheDisk(t *testing.T) {
	m := host()
	m.Mount("20 1 8:1 / / rw - ext4 /dev/sda1 rw")
	m.Mount("21 20 8:16 / /data rw - ext4 /dev/sdb rw")
	m.Mount("22 20 253:0 / /lvm rw - ext4 /dev/mapper/data rw")
	m.Mount("23 20 0:5 / /tmp rw - tmpfs tmpfs rw")
	m.AddSymlink(home+"dm-0/slaves/sda1", "../../sda/sda1")
	for dir, want := range map[string]string{
		"/var/lib": "", "/lvm/a": "",
		"/data": "/data is on sdb, but must be only on sda; name a directory of a filesystem on this disk",
	} {
		if err := checkDirectory(m, find(t, m, "/dev/sda"), dir); err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%s: got %v, want %q", dir, err, want)
		}
	}
	if err := checkDirectory(m, find(t, m, "/dev/sda"), "/tmp"); err == nil {
		t.Error("a tmpfs is on no disk, and is not refused")
	}

	m.AddSymlink(home+"dm-0/slaves/sdb", "../../sdb") // now, /lvm is on two disks
	const both = "/lvm is on sda, sdb, but must be only on sda; name a directory of a filesystem on this disk"
	if err := checkDirectory(m, find(t, m, "/dev/sda"), "/lvm"); err == nil || err.Error() != both {
		t.Errorf("got %v, want %s", err, both)
	}
}

func TestTheSettingsOfTheDisksQueueAreRestored(t *testing.T) {
	scheduler, merges := home+"sda/queue/scheduler", home+"sda/queue/nomerges"
	wanted := func(m *simcgroup.Machine, wantScheduler, wantMerges string) {
		t.Helper()
		for file, want := range map[string]string{scheduler: wantScheduler, merges: wantMerges} {
			if got, err := active(m, file); got != want || err != nil {
				t.Errorf("%s is %q (%v), want %q", file, got, err, want)
			}
		}
	}

	m := host()
	must(t, m.WriteFile(scheduler, []byte("bfq")))
	restore, err := bypass(m, find(t, m, "/dev/sda"))
	must(t, err)
	wanted(m, "none", "2")
	must(t, restore())
	wanted(m, "bfq", "0")

	// if the second setting cannot be changed, the first one is restored at once
	m.Inject(simcgroup.Fault{Op: "write", File: "nomerges", Err: syscall.EINVAL})
	if _, err := bypass(m, find(t, m, "/dev/sda")); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("error is %v, want EINVAL", err)
	}
	wanted(m, "bfq", "0")
}

func TestAFileOfAnotherDiskIsNotOpened(t *testing.T) {
	m := host()
	disk := find(t, m, "/dev/sda")
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "dev"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "dev/sda"), nil, 0o600))
	for _, write := range []bool{false, true} {
		file, err := openDisk(Host{FS: m, Root: root}, disk, write)
		if errors.Is(err, syscall.EINVAL) {
			t.Skip("the temporary directory has no direct I/O")
		}
		want := root + "/dev/sda is not the file of the disk sda (8:0); run the command on the host, or pass --host-root"
		if file != nil || err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestADiskWithEnabledIOCostIsNotMeasured(t *testing.T) {
	m := host()
	if err := checkCost(Host{FS: m}, find(t, m, "/dev/sda")); err != nil {
		t.Error(err)
	}
	must(t, m.WriteFile("/sys/fs/cgroup/io.cost.qos", []byte("8:0 enable=1")))
	if err := checkCost(Host{FS: m}, find(t, m, "/dev/sda")); err == nil {
		t.Error("the disk would be measured")
	}
	if err := checkCost(Host{FS: m}, find(t, m, "/dev/sdb")); err != nil {
		t.Error(err)
	}
}

// costReport returns the report of a disk. With `write`, it has all keys of a cost model, and otherwise only those of reads.
func costReport(t *testing.T, write bool) Report {
	t.Helper()
	report := Report{Disk: find(t, host(), "/dev/sda"), Kernel: "6.12.1", Measured: time.Unix(0, 0), Options: Options{Duration: time.Second, Write: write},
		Result: Result{Model: map[string]uint64{}, QoS: map[string]uint64{"rpct": 50, "rlat": 50, "wpct": 50, "wlat": 50, "min": 60, "max": 100}}}
	for i, key := range iocgroup.CostModelKeys() {
		if write || strings.HasPrefix(key, "r") {
			report.Result.Model[key] = uint64(i + 1)
		}
	}
	return report
}

// parse parses a class file with the report as a cost model.
func (r Report) parse() error {
	class := []byte("apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n" +
		"- {name: k8s.io/blockio, blockio: {CostModels: [/etc/sda.yaml]}}\n")
	_, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: class}}, []classes.Kind{blockio.Kind(nil)},
		func(string) ([]byte, error) { return r.YAML(), nil })
	return err
}

func TestAClassFileAcceptsTheReportAsACostModel(t *testing.T) {
	report := costReport(t, withWrites)
	report.Disk.Model = "\"odd\": # 'name' \\"
	if err := report.parse(); err != nil {
		t.Errorf("%v in\n%s", err, report.YAML())
	}
}

func TestAClassFileRefusesTheReportOfACalibrationWithoutWrites(t *testing.T) {
	const missing = " is missing; measure it with calibrate-io --write or --directory"
	want := "/etc/sda.yaml:14: model: wbps" + missing + "\n/etc/sda.yaml:14: model: wseqiops" + missing + "\n/etc/sda.yaml:14: model: wrandiops" + missing
	if err := costReport(t, readsOnly).parse(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
