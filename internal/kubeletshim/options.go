// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletshim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// What the shim can publish.
const (
	// DevicePlugin publishes classes and capacities to the kubelet. It is always on.
	DevicePlugin = "device-plugin"
	// NodeObject publishes the NodeQOSResources object of the node.
	NodeObject = "node-object"
	// PodConditions sets a condition with its classes on each pod.
	PodConditions = "pod-conditions"
	// Events creates events for refusals and changes at pods.
	Events = "events"
	// Evictions evicts pods of classes that were removed from class files with onClassRemoved: evict.
	Evictions = "evictions"
)

// Publications returns all that can be published.
func Publications() []string {
	return []string{DevicePlugin, NodeObject, PodConditions, Events, Evictions}
}

// Options of the process; its flags.
type Options struct {
	APISocket, KubeletDir, NodeName, Kubeconfig, MetricsAddress string

	Publish           []string
	FollowAnnotations bool
	// Grace is how long capacity is kept while the plugin is not ready.
	Grace   time.Duration
	Version string
}

// DefaultOptions returns the options of a node agent.
func DefaultOptions() Options {
	return Options{
		APISocket: "/run/qos-nri-plugin/qos.sock", KubeletDir: "/var/lib/kubelet", MetricsAddress: "127.0.0.1:9421",
		Publish: Publications(), Grace: 30 * time.Second,
	}
}

// Validate returns an error with the remedy for the first invalid option.
func (o Options) Validate() error {
	for _, name := range o.Publish {
		if !slices.Contains(Publications(), name) {
			return fmt.Errorf("--publish %q is not one of %s", name, strings.Join(Publications(), ", "))
		}
	}
	switch {
	case o.Grace < time.Second:
		return fmt.Errorf("--grace %s is too short for a restart of the plugin; at least 1s, usually 30s", o.Grace)
	case o.NodeName == "" && o.usesAPI():
		return errors.New("--node-name is required except with --publish=device-plugin; pass the name of the Node object")
	}
	return nil
}

func (o Options) publishes(name string) bool { return slices.Contains(o.Publish, name) }

func (o Options) usesPods() bool {
	return o.publishes(PodConditions) || o.publishes(Events) || o.FollowAnnotations
}

func (o Options) usesAPI() bool {
	return o.publishes(NodeObject) || o.usesPods() || o.publishes(Evictions)
}
