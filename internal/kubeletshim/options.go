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

// These are the values of the flag --publish.
const (
	// DevicePlugin publishes classes and capacities to the kubelet. It alone needs access to the kubelet's directories.
	DevicePlugin = "device-plugin"
	// NodeObject publishes the NodeQOSResources object of the node.
	NodeObject = "node-object"
	// PodConditions sets the condition qos.noderesource.dev/Assigned on each pod. It lists the classes of the pod.
	PodConditions = "pod-conditions"
	// Events creates an event on a pod when the plugin refuses or changes a class of the pod.
	Events = "events"
	// Evictions evicts pods whose class was removed, if the class files set "onClassRemoved: evict" for the class's
	// resource.
	Evictions = "evictions"
)

// Publications returns all values of the flag --publish.
func Publications() []string {
	return []string{DevicePlugin, NodeObject, PodConditions, Events, Evictions}
}

// Options are the options of the shim, which the command's flags set.
type Options struct {
	APISocket, KubeletDir, NodeName, Kubeconfig, MetricsAddress string

	Publish           []string
	FollowAnnotations bool
	// FollowClaims makes the plugin enforce the classes of claims in the spec of the NodeQOSResources object.
	FollowClaims bool
	// Grace is how long the shim keeps the published capacity while the plugin is not ready.
	Grace   time.Duration
	Version string
}

// DefaultOptions returns the default options.
func DefaultOptions() Options {
	return Options{
		APISocket: "/run/qos-nri-plugin/qos.sock", KubeletDir: "/var/lib/kubelet", MetricsAddress: "127.0.0.1:9421",
		Publish: Publications(), Grace: 30 * time.Second,
	}
}

// Validate returns an error for the first invalid option. The error includes the remedy.
func (o Options) Validate() error {
	for _, name := range o.Publish {
		if !slices.Contains(Publications(), name) {
			return fmt.Errorf("--publish %q is not one of %s", name, strings.Join(Publications(), ", "))
		}
	}
	switch {
	case len(o.Publish) == 0 && !o.FollowAnnotations:
		return fmt.Errorf("--publish is empty; name at least one of %s", strings.Join(Publications(), ", "))
	case o.FollowClaims && !o.publishes(NodeObject):
		return fmt.Errorf("--follow-claims needs --publish=%s, because the state of the claims is part of the NodeQOSResources object", NodeObject)
	case o.Grace < time.Second:
		return fmt.Errorf("--grace %s is too short for a restart of the plugin; use at least 1s, usually 30s", o.Grace)
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
