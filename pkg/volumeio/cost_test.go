// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/mountinfo"
	"github.com/qos-nri/qos-nri-plugin/test/iotest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

const volumeMount = "/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/pv/mount"

// opening is a host whose files can be opened. It counts the bytes that are read from each file.
type opening struct {
	*simcgroup.Machine
	read map[string]int
}

func (o opening) Open(path string) (io.ReadCloser, error) {
	data, err := o.ReadFile(path)
	return &counted{strings.NewReader(string(data)), func(n int) { o.read[path] += n }}, err
}

type counted struct {
	io.Reader
	count func(int)
}

func (c *counted) Read(data []byte) (int, error) {
	n, err := c.Reader.Read(data)
	c.count(n)
	return n, err
}

func (c *counted) Close() error { return nil }

// withManyMounts is a host on which container 10 has more mounts than the plugin reads. Its volume /data is the last mount. The
// kubelet has mounted a volume for the pod of the container.
func withManyMounts() opening {
	host := opening{withMounts(strings.Repeat("50 40 0:9 / /x rw - tmpfs tmpfs rw\n", 200_000) + "50 40 8:16 / /data rw - ext4 /dev/sdb rw"), map[string]int{}}
	host.Mount("61 1 8:16 / " + volumeMount + " rw - ext4 /dev/sdb rw")
	return host
}

func TestTheMountsOfAContainerAreNotReadForAVolumeOfTheKubelet(t *testing.T) {
	host := withManyMounts()
	v := newVolumesOn(t, host, host.Machine, slog.DiscardHandler)
	target := v.hold(10, "/data", "silver")
	for _, source := range []classes.VolumeSource{{Dir: volumeMount}, {Device: "8:16"}} {
		target.VolumeSources = map[string]classes.VolumeSource{"/data": source}
		if err := v.volume.Enforce(t.Context(), target, "silver", "silver"); err != nil {
			t.Error(err)
		}
	}
	v.want(podMax, "8:16 "+silverLimits)
	if n := host.read["/proc/10/mountinfo"]; n > 0 {
		t.Errorf("%d bytes were read from the mounts of the container", n)
	}
}

// TestAContainerWithTooManyMountsKeepsItsLimits lets the container add its mounts after its start.
func TestAContainerWithTooManyMountsKeepsItsLimits(t *testing.T) {
	host := withManyMounts()
	v := newVolumesOn(t, host, host.Machine, slog.DiscardHandler)
	v.holdPod()
	m := host.Machine
	many, _ := m.ReadFile("/proc/10/mountinfo")
	m.AddFile("/proc/10/mountinfo", "50 40 8:16 / /data rw - ext4 /dev/sdb rw\n")
	v.mustStart(10, "/data", "silver")

	m.AddFile("/proc/10/mountinfo", string(many))
	clear(host.read)
	err := v.start(10, "/data", "silver")
	if !errors.Is(err, mountinfo.ErrTooLarge) || !strings.Contains(err.Error(), "/proc/10/mountinfo") {
		t.Errorf("got %v", err)
	}
	v.wantObserved(10, "/data", "silver", "")
	v.repair()
	v.want(podMax, "8:16 "+silverLimits)
	if n, most := host.read["/proc/10/mountinfo"], 3*(mountinfo.ContainerLimit+1); n > most {
		t.Errorf("%d bytes were read in three operations, want at most %d", n, most)
	}
}

// manyVolumes is a node with the maximum number of volumes: a claim is mounted at 32 paths in each of 31 pods. The node has
// other mounts, too.
func manyVolumes(tb testing.TB, others int) (host opening, backend classes.Backend, holdings []classes.Holding) {
	tb.Helper()
	const pods, volumes = 31, classes.MaxVolumes
	m := simcgroup.New()
	m.AddDisk("sda", 8, 0)
	m.AddDisk("sdb", 8, 16)
	m.AddPartition("sda", "sda1", 8, 1)
	iotest.Mount(m)
	for i := range others {
		m.Mount(fmt.Sprintf("%d 28 0:%d / /run/containerd/io.containerd.runtime.v2.task/k8s.io/%064x/rootfs rw - tmpfs tmpfs rw", 1000+i, 100+i, i))
	}
	for i := range pods {
		uid := fmt.Sprintf("11111111-2222-3333-4444-%012d", i)
		dir := "/var/lib/kubelet/pods/" + uid + "/volumes/kubernetes.io~csi/pv/mount"
		m.AddCgroup("/kubepods/pod" + uid)
		m.Mount(fmt.Sprintf("%d 28 8:16 / %s rw - ext4 /dev/sdb rw", 20000+i, dir))
		m.AddFile(mountinfo.File(100+i), "50 40 8:16 / /00 rw - ext4 /dev/sdb rw\n")
		m.AddProcess("/kubepods/pod"+uid, 100+i)

		sources := map[string]classes.VolumeSource{}
		for j := range volumes {
			sources[fmt.Sprintf("/%02d", j)] = classes.VolumeSource{Dir: dir}
		}
		for path := range sources {
			holdings = append(holdings, classes.Holding{
				Holder: classes.Holder{
					ID: classes.VolumeID("c"+uid, path), ContainerID: "c" + uid, PodUID: uid, Container: "c", Volume: path, PID: 100 + i,
					CgroupsPath: "/kubepods/pod" + uid, VolumeSources: sources,
				},
				Assignments: []classes.Assignment{{Resource: "volume-io", Class: "silver"}},
			})
		}
	}

	tree, err := cgroup.Detect(m)
	must(tb, err)
	host = opening{m, map[string]int{}}
	backend = Kind(ioapply.New(ioapply.Options{FS: host, Tree: tree, Log: slog.New(slog.DiscardHandler)})).New("volume-io", classes.VolumeScope)
	backend.(classes.Sharer).ShareWith(func(uid string) (of []classes.Holding) {
		for i := range holdings {
			if uid == "" || holdings[i].PodUID == uid {
				of = append(of, holdings[i])
			}
		}
		return of
	})
	config, err := classes.ParseSection(classes.File{Data: []byte(volumeSection)}, ParseConfig)
	if err == nil {
		err = backend.Apply(tb.Context(), config)
	}
	must(tb, err)
	return host, backend, holdings
}

// observeAll enforces the classes of volumes, if they have no limits yet, and observes them.
func observeAll(tb testing.TB, backend classes.Backend, holdings []classes.Holding) {
	tb.Helper()
	defer backend.(classes.RoundObserver).BeginRound()()
	for i := range holdings {
		h := holdings[i].Holder
		seen, err := backend.Observe(tb.Context(), h, "silver")
		if err == nil && seen.Class != "silver" {
			err = backend.Enforce(tb.Context(), h, "silver", "silver")
		}
		must(tb, err)
	}
}

func TestARoundOfTheReconcilerReadsTheMountsOfTheNodeOnce(t *testing.T) {
	host, backend, holdings := manyVolumes(t, 10)
	observeAll(t, backend, holdings)
	mounts, _ := host.ReadFile("/proc/1/mountinfo")
	if got := host.read["/proc/1/mountinfo"]; got != len(mounts) {
		t.Errorf("%d bytes of the mounts of the node were read, want %d", got, len(mounts))
	}

	clear(host.read)
	observeAll(t, backend, holdings)
	if got := host.read["/proc/1/mountinfo"]; got != len(mounts) {
		t.Errorf("the next round read %d bytes, want %d", got, len(mounts))
	}
}

// TestAContainerThatStartsDuringARoundIsFoundInNewMounts: in a round, the backend reads the mounts of the node only once. For a container
// that is starting, it reads them again, because the kubelet may have mounted the volume after that.
func TestAContainerThatStartsDuringARoundIsFoundInNewMounts(t *testing.T) {
	v := newVolumes(t, withMounts("50 40 8:16 / /data rw - ext4 /dev/sdb rw"))
	defer v.volume.(classes.RoundObserver).BeginRound()()
	v.mustStart(10, "/data", "silver") // reads the mounts of the node
	target := v.addIn("2", 11, "/data", "silver")
	v.machine.Mount("61 1 7:0 / /var/lib/kubelet/pods/2/volumes/kubernetes.io~csi/pv/mount rw - ext4 /dev/loop0 rw")
	target.Starting = true
	target.VolumeSources = map[string]classes.VolumeSource{"/data": {Dir: "/var/lib/kubelet/pods/2/volumes/kubernetes.io~csi/pv/mount"}}
	must(t, v.volume.Enforce(t.Context(), target, "silver", "silver"))
	v.want("/sys/fs/cgroup/kubepods/pod2/io.max", "7:0 "+silverLimits)
}

// BenchmarkObservingTheVolumesOfANode does what the reconciler does every 15 s with the maximum number of volumes.
func BenchmarkObservingTheVolumesOfANode(b *testing.B) {
	for _, others := range []int{500, 3000} {
		_, backend, holdings := manyVolumes(b, others)
		observeAll(b, backend, holdings)
		b.Run(fmt.Sprintf("%d volumes and %d other mounts", len(holdings), others), func(b *testing.B) {
			for b.Loop() {
				observeAll(b, backend, holdings)
			}
		})
	}
}
