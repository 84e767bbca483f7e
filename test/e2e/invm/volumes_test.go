// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

const volumeResource = `- name: qos.noderesource.dev/volume-io
  scope: volume
  volumeio: {classes: {silver: {maxReadBps: 2M, maxWriteBps: 1M}, gold: {maxWriteBps: 3M, maxReadIops: 100}}}
`

// volumes: the class of a volume limits the I/O of the pod on this volume, from the first instruction of a container
// until its end.
func volumes(t *testing.T, shared *pod) {
	n := shared.node
	t.Cleanup(func() { writeClassFile(t, classFile) })
	n.offerVolumes(t, volumeResource)
	loop := mountLoop(t, "/vols/loop")
	disk := mountNew(t, "/dev/vdb", "/vols/disk")

	annotations := map[string]string{}
	for container, request := range map[string]string{"one": "/data=silver", "two": "/data=silver,/disk=gold", "node": "/data=silver"} {
		annotations["volumes.qos.noderesource.dev/"+container] = request
	}

	p := n.runPod(t, "volumes", annotations)
	one := p.run(t, spec{name: "one", mounts: []*cri.Mount{{ContainerPath: "/data", HostPath: "/vols/loop"}}})
	silver := ioLimits{loop: {"rbps": "2000000", "wbps": "1000000"}}
	wantLimits(t, n.limits(t, p.cgroup()), silver)
	for _, l := range []limit{{"write", "/data/direct", 1e6}, {"fsync", "/data/buffered", 1e6}, {"read", "/data/direct", 2e6}} {
		l.measure(t, one, 4)
	}
	n.wantVolumeUse(t, p, loop)

	two := p.run(t, spec{name: "two", mounts: []*cri.Mount{
		{ContainerPath: "/data", HostPath: "/vols/loop"}, {ContainerPath: "/disk", HostPath: "/vols/disk"},
	}})

	both := ioLimits{loop: silver[loop], disk: {"wbps": "3000000", "riops": "100"}}
	wantLimits(t, n.limits(t, p.cgroup()), both)
	limit{"write", "/disk/file", 3e6}.measure(t, two, 4)
	t.Run("two containers share the limit", func(t *testing.T) { sharesLimit(t, one, two) })
	t.Run("a container with a directory of the node as its volume does not start", func(t *testing.T) { refusesNodeDirectory(t, p) })
	n.wantVolume(t, p, "one", "/data", "silver")
	n.wantVolume(t, p, "two", "/disk", "gold")

	n.restartPlugin(t)
	eventually(t, "the classes are reported after a restart", func() error {
		return errors.Join(n.hasVolume(t, p, "one", "/data", "silver"), n.hasVolume(t, p, "two", "/disk", "gold"))
	})

	wantLimits(t, n.limits(t, p.cgroup()), both)
	n.offerVolumes(t, strings.Replace(volumeResource, "maxWriteBps: 1M", "maxWriteBps: 2M", 1))
	both[loop] = map[string]string{"rbps": "2000000", "wbps": "2000000"}
	eventually(t, "the new limit is in force", func() error { return n.hasLimits(t, p.cgroup(), both) })
	limit{"write", "/data/direct", 2e6}.measure(t, one, 4)

	two.remove(t)
	eventually(t, "the limit of a container that ended is gone", func() error { return n.hasLimits(t, p.cgroup(), ioLimits{loop: both[loop]}) })
	if n.machine() == intelV2 { // does not depend on the runtime
		t.Run("a lower limit of another program stays, and a higher limit is lowered", func(t *testing.T) { besideAnotherProgram(t, one, loop) })
	}
	p.remove(t)
	must(t, unix.Unmount("/vols/loop", 0))
	must(t, unix.Unmount("/vols/disk", 0))
}

// besideAnotherProgram writes limits of the disk into the pod's cgroup, as a CSI driver may do. The volume /data of the container has
// the class silver, with 2 MB a second for reads and for writes.
func besideAnotherProgram(t *testing.T, c *container, disk string) {
	n, p := c.pod.node, c.pod
	ioMax := filepath.Join(n.ioCgroup(p.cgroup()), "io.max")
	mustWrite(t, ioMax, disk+" wbps=9000000")
	eventually(t, "a higher limit is lowered", func() error {
		return n.hasLimits(t, p.cgroup(), ioLimits{disk: {"rbps": "2000000", "wbps": "2000000"}})
	})

	mustWrite(t, ioMax, disk+" wbps=300000 riops=50")
	eventually(t, "the lower limits are reported", func() error {
		const want = "lower limits on %s wbps=300000 riops=50"
		if got := n.volumeOf(t, p, "one", "/data").GetForeign(); got != fmt.Sprintf(want, disk) {
			return fmt.Errorf("reported %q, want %q", got, fmt.Sprintf(want, disk))
		}
		return nil
	})

	n.offerVolumes(t, strings.Replace(volumeResource, "maxReadBps: 2M", "maxReadBps: 3M", 1))
	eventually(t, "a change of the class leaves the lower limits", func() error {
		return n.hasLimits(t, p.cgroup(), ioLimits{disk: {"rbps": "3000000", "wbps": "300000", "riops": "50"}})
	})

	c.remove(t)
	eventually(t, "only the limits of the other program are left", func() error {
		return n.hasLimits(t, p.cgroup(), ioLimits{disk: {"wbps": "300000", "riops": "50"}})
	})
}

// offerVolumes adds a resource to the class file, and waits until it is offered.
func (n *node) offerVolumes(t testing.TB, resource string) {
	t.Helper()
	before := n.status(t).GetConfig().GetHash()
	writeClassFile(t, classFile+resource)
	eventually(t, "classes of volumes are offered", func() error {
		if status := n.status(t); status.GetConfig().GetHash() == before || len(status.GetResources().GetVolumeQosResources()) == 0 {
			return fmt.Errorf("%v", status)
		}
		return nil
	})
}

func (n *node) wantVolume(t testing.TB, p *pod, container, path, class string) {
	t.Helper()
	if err := n.hasVolume(t, p, container, path, class); err != nil {
		t.Error(err)
	}
}

// hasVolume compares the reported class of a volume.
func (n *node) hasVolume(t testing.TB, p *pod, container, path, class string) error {
	t.Helper()
	reported := n.volumeOf(t, p, container, path)
	if reported == nil {
		return fmt.Errorf("volume %s of %s is not reported", path, container)
	}
	if got := reported.GetClass(); got != class {
		return fmt.Errorf("volume %s of %s is reported in class %q, want %q", path, container, got, class)
	}
	return nil
}

// volumeOf returns what the plugin reports of a volume's class, or nil if it does not report the volume.
func (n *node) volumeOf(t testing.TB, p *pod, container, path string) *qos.Assignment {
	t.Helper()
	for _, reported := range n.assignments(t).GetPods() {
		for _, c := range reported.GetContainers() {
			for _, v := range c.GetVolumes() {
				if reported.GetUid() == p.config.Metadata.Uid && c.GetName() == container && v.GetPath() == path {
					return v.GetQosResources()[0]
				}
			}
		}
	}
	return nil
}

// wantVolumeUse compares the metrics of the volume /data of the container "one" with its limits and with the kernel's counters of the pod.
func (n *node) wantVolumeUse(t *testing.T, p *pod, disk string) {
	t.Helper()
	name, err := os.Readlink("/sys/dev/block/" + disk)
	must(t, err)
	labels := fmt.Sprintf(`{class="silver",container="one",device=%q,namespace=%q,pod=%q,resource="qos.noderesource.dev/volume-io",volume="/data"} `,
		filepath.Base(name), p.config.Metadata.Namespace, p.config.Metadata.Name)
	eventually(t, "the metrics have what the kernel has counted", func() error {
		page := metrics(t)
		_, counted, _ := strings.Cut(mustRead(t, filepath.Join(n.ioCgroup(p.cgroup()), "io.stat")), disk+" ")
		for series, key := range map[string]string{
			"read_bytes_total": "rbytes=", "written_bytes_total": "wbytes=", "reads_total": "rios=", "writes_total": "wios=",
		} {
			got, err := valueAfter(page, "qos_volume_"+series+labels)
			want, missing := valueAfter(counted, key)
			if err := errors.Join(err, missing); err != nil {
				return err
			}
			if got != want || want == 0 {
				return fmt.Errorf("qos_volume_%s is %v, and the kernel has counted %v", series, got, want)
			}
		}
		for series, want := range map[string]float64{"max_read_bps": 2e6, "max_write_bps": 1e6} {
			got, err := valueAfter(page, "qos_volume_"+series+labels)
			if err != nil {
				return err
			}
			if got != want {
				return fmt.Errorf("qos_volume_%s is %v, want %v", series, got, want)
			}
		}
		return nil
	})
}

// sharesLimit writes from two containers to one volume, whose class limits writes to 1 MB a second.
func sharesLimit(t *testing.T, one, two *container) {
	var rates [2]float64
	var writing sync.WaitGroup
	for i, c := range []*container{one, two} {
		writing.Go(func() { rates[i] = bytesPerSecond(t, c.exec(t, "io", "write", fmt.Sprint("/data/", i), "3")) })
	}
	writing.Wait()
	t.Logf("%.3g and %.3g B/s under a limit of 1e+06", rates[0], rates[1])
	if rates[0]+rates[1] > 1.2e6 {
		t.Errorf("both write %.3g B/s, want at most 1e6 plus 20%%", rates[0]+rates[1])
	}
}

// refusesNodeDirectory: the directory is on a disk that the node itself uses, so the limit would apply to all I/O of the pod on
// this disk, and not only to the volume.
func refusesNodeDirectory(t *testing.T, p *pod) {
	c := p.admit(t, spec{name: "node", mounts: []*cri.Mount{{ContainerPath: "/data", HostPath: "/var/lib/containerd"}}})
	_, err := p.node.runtime.StartContainer(requestContext(t), &cri.StartContainerRequest{ContainerId: c.id})
	want, inError := "of /data also contains the node's mount /var/lib/containerd; use a class with sharedDisk: limit", true
	if p.node.machine()&crio != 0 { // there, the directory is on no disk, and CRI-O returns only the error of the OCI runtime
		want, inError = "/data is on tmpfs", false
	}
	if err == nil || inError && !strings.Contains(err.Error(), want) {
		t.Errorf("start: %v, want %q", err, want)
	}

	if got := p.node.refusalOf(t, p, "node"); !strings.Contains(got, want) {
		t.Errorf("reported refusal %q, want %q", got, want)
	}

	c.wantNeverRan(t)
	c.remove(t)
}
