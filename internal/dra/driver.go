// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dra is a DRA driver, which publishes QoS classes as devices of Dynamic Resource Allocation. The scheduler
// allocates a class to a ResourceClaim. The kubelet asks the driver to prepare the claim before it starts the
// containers of the claim.
package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// DriverName is the name of the driver in ResourceSlices, DeviceClasses and claims.
const DriverName = classes.Domain

const (
	// debounce is the time for which the driver waits for further changes after a first change.
	debounce = 200 * time.Millisecond
	// retryInterval is the interval at which the driver retries to publish the classes.
	retryInterval = 10 * time.Second
	// healthInterval is the interval of the reports of WatchHealthStatus. The library expects one every 30 s.
	healthInterval = 20 * time.Second
)

// Cache provides the plugin's state, and a channel that is closed when the state changes.
type Cache interface {
	Get() (state nodecache.State, changed <-chan struct{})
}

// Driver is the DRA driver of a node.
type Driver struct {
	plugin  Cache
	client  kubernetes.Interface
	options Options
	log     *slog.Logger

	mu      sync.Mutex // guards the fields below
	devices map[string]device
	record  *record // nil until Run has read it
	problem string  // why the classes are not published
}

// New returns a driver. It does no I/O.
func New(plugin Cache, client kubernetes.Interface, o Options, log *slog.Logger) *Driver {
	return &Driver{plugin: plugin, client: client, options: o, log: log, problem: "no class is published yet"}
}

// Run publishes the classes and prepares claims until `ctx` ends. After that, the ResourceSlices stay, but pods with
// claims wait for a driver.
func (d *Driver) Run(ctx context.Context) error {
	data := filepath.Join(d.options.KubeletDir, "plugins", DriverName)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return fmt.Errorf("create the directory of the DRA driver: %w", err)
	}
	record, err := openRecord(filepath.Join(data, "claims.json"))
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.record = record
	d.mu.Unlock()

	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(DriverName), kubeletplugin.NodeName(d.options.NodeName), kubeletplugin.KubeClient(d.client),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(d.options.KubeletDir, "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.PluginSocket(d.socket()))
	if err != nil {
		return fmt.Errorf("start the DRA driver: %w", err)
	}
	defer helper.Stop()

	d.publishLoop(ctx, helper)
	return nil
}

// socket returns the name of the driver's socket. A retiring driver has another socket, so that device plugins can
// register.
func (d *Driver) socket() string {
	if d.options.Retire {
		return "retired.sock"
	}
	return classes.DRASocket
}

// Healthy returns nil if the classes are published, and otherwise the reason why they are not.
func (d *Driver) Healthy() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.problem != "" {
		return errors.New(d.problem)
	}
	return nil
}

// publisher writes the ResourceSlices of the node in the background.
type publisher interface {
	PublishResources(ctx context.Context, resources resourceslice.DriverResources) error
}

func (d *Driver) publishLoop(ctx context.Context, helper publisher) {
	for {
		state, changed := d.plugin.Get()
		recheck := d.publish(ctx, helper, state)
		if state.Ready() && d.report(ctx, state) {
			recheck = pause.Shortest(recheck, retryInterval)
		}
		var again <-chan time.Time
		if recheck > 0 {
			again = time.After(recheck)
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-changed:
			pause.For(ctx, debounce)
		}
	}
}

// publish publishes the classes of a state. It publishes nothing until the plugin has been ready once. If `recheck` is
// not 0, publish must be called again after this time even if the state has not changed.
func (d *Driver) publish(ctx context.Context, helper publisher, state nodecache.State) (recheck time.Duration) {
	if state.Status == nil {
		return 0
	}
	withheld := false
	if !state.Ready() {
		if recheck = d.options.Grace - time.Since(state.NotReadySince); recheck > 0 {
			return recheck
		}
		withheld = true
	}

	resources, err := d.update(state, withheld)
	if err == nil && d.Healthy() != nil && !d.options.Retire {
		err = d.offeredOtherwise(ctx)
	}
	if err == nil {
		err = helper.PublishResources(ctx, resources)
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.problem = ""
		return 0
	}
	if d.problem != err.Error() {
		d.log.Warn("cannot publish the classes by DRA", "error", err)
	}
	d.problem = err.Error()
	return retryInterval
}

// offeredOtherwise returns an error if device plugins offer a class of the node. The scheduler would count such a class twice.
func (d *Driver) offeredOtherwise(ctx context.Context) error {
	node, err := d.client.CoreV1().Nodes().Get(ctx, d.options.NodeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the Node: %w", err)
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	for _, device := range d.devices {
		if amount := node.Status.Allocatable[corev1.ResourceName(device.extended)]; !amount.IsZero() {
			return fmt.Errorf("the node still offers %s by a device plugin, and a node can offer a class in only one way; "+
				"end \"qos-kubelet-shim --publish=device-plugin\" on the node, and the driver takes over", device.extended)
		}
	}
	return nil
}

// update replaces the classes that can be prepared by those of a state, and returns them for publication.
func (d *Driver) update(state nodecache.State, withheld bool) (resourceslice.DriverResources, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	list := devicesOf(state.Status.GetResources(), d.options.PerDomain)
	if d.options.NoExecute {
		markEvicting(list, state.Assignments.GetEvictions())
	}
	if slices.ContainsFunc(list, func(device device) bool { return device.divided }) {
		domains, err := readDomains(os.DirFS(d.options.SysDir))
		if err != nil {
			return resourceslice.DriverResources{}, err
		}
		list = divide(list, domains)
	}
	var pairs []classes.Pair
	d.devices = map[string]device{}
	for _, device := range list {
		d.devices[device.name] = device
		pairs = append(pairs, device.Pair)
	}
	counts := d.record.counts()
	for p := range counts { // a container with a prepared claim can be restarted after its class was removed
		pairs = append(pairs, p)
	}

	// The runtime must know a device before the scheduler can allocate it.
	if err := writeCDI(d.options.CDIDir, pairs); err != nil {
		return resourceslice.DriverResources{}, err
	}
	if d.options.Retire {
		list = nil
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{d.options.NodeName: pool(state, list, counts, withheld)}}, nil
}

// HandleError logs an error of the library. The library tries again.
func (d *Driver) HandleError(_ context.Context, err error, message string) {
	d.log.Warn("the DRA driver has failed", "what", message, "error", err)
}

// WatchHealthStatus sends empty reports until `ctx` ends, because the health of a class is not known here. If a driver
// does not support reports, Kubernetes 1.36 calls it again every 5 s. If a driver sends none, Kubernetes logs it as
// broken.
func (d *Driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	for ctx.Err() == nil {
		select {
		case reports <- kubeletplugin.DeviceHealthReport{}:
			pause.For(ctx, healthInterval)
		case <-ctx.Done():
		}
	}
	return nil
}
