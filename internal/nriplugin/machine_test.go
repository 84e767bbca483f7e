// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/checkpoint"
	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeclient"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

const machineFiles = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  defaultClass: bronze
  classes: [{name: gold, capacity: 2}, {name: silver}, {name: bronze}]
  rdt:
    partitions:
      exclusive: {l3Allocation: "50%", classes: {gold: {l3Allocation: "100%"}}}
      shared: {l3Allocation: "50%", classes: {silver: {l3Allocation: "50%"}, bronze: {l3Allocation: "100%"}}}
- name: k8s.io/blockio
  classes: [{name: fast, capacity: 2}, {name: slow}]
  blockio:
    Classes:
      fast: [{Devices: [/dev/vda], ThrottleReadBps: 50M}]
      slow: [{Devices: ["/dev/vd[ab]"], ThrottleReadBps: 1M}]
`

// limits returns the content of the cgroup v2 files for each class of machineFiles.
func limits() map[string]map[string]string {
	return map[string]map[string]string{
		"fast": {"io.max": "254:0 rbps=50000000"}, "slow": {"io.max": "254:0 rbps=1000000\n254:16 rbps=1000000"},
	}
}

// host is a simulated machine. A test can intercept the changes that the plugin makes, but not those that the runtime
// makes.
type host struct {
	*sim.Machine
	before *atomic.Pointer[func(op, path string) error]
	// written is called after each write. It may be nil.
	written *atomic.Pointer[func(path string)]
	// If readOnly is true, resctrl is mounted read-only.
	readOnly *atomic.Bool
}

// intercept sets a function that is called before each change. If the function returns an error, the change fails with
// this error.
func (h host) intercept(before func(op, path string) error) { h.before.Store(&before) }

// fail makes each change fail whose path contains a text. heal ends this.
func (h host) fail(below string, err error) {
	h.intercept(func(_, path string) error {
		if strings.Contains(path, below) {
			return err
		}
		return nil
	})
}

// heal ends what intercept and fail do.
func (h host) heal() { h.before.Store(nil) }

// after sets a function that is called after each write.
func (h host) after(written func(path string)) { h.written.Store(&written) }

// ReadFile implements resctrl.FS and iodisks.FS.
func (h host) ReadFile(path string) ([]byte, error) {
	data, err := h.Machine.ReadFile(path)
	if h.readOnly.Load() && strings.HasSuffix(path, "/mountinfo") {
		data = bytes.ReplaceAll(data, []byte(" resctrl resctrl rw"), []byte(" resctrl resctrl ro"))
	}
	return data, err
}

func (h host) begin(op, path string) error {
	if h.readOnly.Load() && strings.HasPrefix(path, resctrl.MountPoint+"/") {
		return &os.PathError{Op: op, Path: path, Err: syscall.EROFS}
	}
	before := h.before.Load()
	if before == nil {
		return nil
	}
	if err := (*before)(op, path); err != nil {
		return &os.PathError{Op: op, Path: path, Err: err}
	}
	return nil
}

// WriteFile implements resctrl.FS and iodisks.FS.
func (h host) WriteFile(path string, data []byte) error {
	if err := h.begin("write", path); err != nil {
		return err
	}
	err := h.Machine.WriteFile(path, data)
	if written := h.written.Load(); written != nil {
		(*written)(path)
	}
	return err
}

func (h host) Mkdir(path string) error {
	if err := h.begin("mkdir", path); err != nil {
		return err
	}
	return h.Machine.Mkdir(path)
}

// machineRig is the plugin with its own backends on a simulated machine, on which a runtime runs containers.
type machineRig struct {
	rig
	host  host
	kinds []classes.Kind
	world invariant.Machine
	// checkpoint is the path of the checkpoint, which all processes of the plugin share.
	checkpoint string
	// passed is the difference between the node's clock and the real time, in nanoseconds.
	passed atomic.Int64
}

// newMachineRig returns a rig on a machine with these cgroups, with the classes of machineFiles.
func newMachineRig(t *testing.T, cgroups *simcgroup.Machine) *machineRig {
	t.Helper()
	return newMachineRigOn(t, newMachine(cgroups), machineFiles, nriruntime.Options{})
}

// newMachineRigWith returns a rig on a machine with cgroup v2, with the class files in `text`.
func newMachineRigWith(t *testing.T, text string) *machineRig {
	t.Helper()
	return newMachineRigOn(t, newMachine(simcgroup.New()), text, nriruntime.Options{})
}

// newMachine returns a machine with the disks vda and vdb, and with resctrl.
func newMachine(cgroups *simcgroup.Machine) *sim.Machine {
	spec := resctrl.IntelSpec()
	cgroups.AddDisk("vda", 254, 0)
	cgroups.AddDisk("vdb", 254, 16)
	return sim.New(sim.Options{RDT: &spec, Cgroups: cgroups})
}

// newMachineRigOn returns a rig on a machine, with the class files in `text`. The tests fail if an existing group of
// resctrl is changed. If the options have no OCI runtime, the machine is the OCI runtime.
func newMachineRigOn(t *testing.T, m *sim.Machine, text string, options nriruntime.Options) *machineRig {
	t.Helper()
	r := &machineRig{host: host{m, &atomic.Pointer[func(op, path string) error]{}, &atomic.Pointer[func(path string)]{}, &atomic.Bool{}}}
	if options.OCI == nil {
		options.OCI = r.host
	}

	r.Runtime = startRuntime(t, options)
	r.node = r.newNode(t)
	var err error
	r.world.Before, err = invariant.ForeignOf(r.host)
	must(t, err)
	r.world.Host, r.world.Live, r.world.API = r.host, invariant.LiveIn(r.Runtime), serveAPI(t, r.node)
	r.world.Expect.Limits = map[string]map[string]map[string]string{"k8s.io/blockio": limits()}
	r.mustConfigure(t, text)
	r.begin(t, r.node)
	return r
}

func (r *machineRig) newNode(t *testing.T) *node.Node {
	t.Helper()
	tree, err := cgroup.Detect(r.host)
	must(t, err)

	log := slog.New(slog.DiscardHandler)
	r.kinds = config.Kinds(config.Host{FS: r.host, Tree: tree, MountResctrl: true, Log: log})
	if r.checkpoint == "" {
		r.checkpoint = filepath.Join(t.TempDir(), "changes.json")
	}

	changes := checkpoint.Open(r.checkpoint, "this boot", log)
	return node.New(node.Options{
		Kinds: r.kinds, Changes: changes, Log: log, HasCgroup: tree.Exists,
		Kill: func(container classes.Holder) error { return cgroup.Kill(r.host, container) },
		Now:  func() time.Time { return time.Now().Add(time.Duration(r.passed.Load())) },
	})
}

// serveAPI serves the node API until the end of the test.
func serveAPI(t *testing.T, n *node.Node) qosv1alpha1.NodeQOSClient {
	t.Helper()
	dir, err := os.MkdirTemp("", "qos")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "qos.sock")
	ctx, cancel := context.WithCancel(t.Context())
	server, ended := nodeapi.New(n, nodeapi.Options{Socket: socket, Log: slog.New(slog.DiscardHandler)}), make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the node API ended with %v", err)
		}
	})

	<-server.Ready()
	conn, err := nodeclient.Connect(socket)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return qosv1alpha1.NewNodeQOSClient(conn)
}

// configure applies changed class files in the way that the agent does.
func (r *machineRig) configure(t *testing.T, text string) error {
	t.Helper()
	config, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte(text)}}, r.kinds, nil)
	if err := r.node.Configure(t.Context(), classes.FileSet{Config: config, Err: err}); err != nil {
		return err
	}
	if r.plugin != nil {
		r.plugin.Refresh()
	}
	r.node.Reconcile(t.Context())
	return nil
}

func (r *machineRig) mustConfigure(t *testing.T, text string) {
	t.Helper()
	must(t, r.configure(t, text))
}

// mustStop ends containers.
func (r *machineRig) mustStop(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		must(t, r.StopContainer(t.Context(), id))
	}
}

func (r *rig) wantReported(t *testing.T, id, resource, want string) {
	t.Helper()
	if got := nodetest.Has(r.node.Assignments(), id, resource); got != want {
		t.Errorf("%s of %.12s is reported as %q, want %q", resource, id, got, want)
	}
}

func TestTheInvariantsHoldOnAMachineWithoutDrift(t *testing.T) {
	r := newMachineRig(t, simcgroup.New())
	r.world.Hold(t)
	r.mustRun(t, r.pod(t, "requests", "rdt=gold,blockio=slow"))
	id := r.mustRun(t, r.pod(t, "plain", ""))
	r.world.Hold(t)
	r.wantReported(t, id, "k8s.io/rdt", "bronze/default")
}
