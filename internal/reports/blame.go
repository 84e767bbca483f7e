// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reports has the reports that the plugin makes from its history: which containers have waited for a resource,
// and which class fits a container. A report has the same JSON form as its message of the node API. kubectl-qos reads
// this form without the Go type of the message, which would link gRPC.
package reports

import (
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Container identifies a container.
type Container struct {
	ID        string `json:"-"`
	PodUID    string `json:"podUid"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// Name is empty for the pod as a whole.
	Name string `json:"container,omitempty"`
}

// Blame lists the containers of a pod, or those containers of the node that suffered, the worst first. Its message is
// qos.v1alpha1.BlameResponse.
type Blame struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Points is the number of points in the history.
	Points int `json:"-"`
	// Incomplete is the number of containers that the history does not record completely, because it has no room for the
	// container or for one of its disks.
	Incomplete int        `json:"incompleteContainers"`
	Sufferers  []Sufferer `json:"sufferers"`
}

// Sufferer is a container with its findings. It has none if it did not suffer.
type Sufferer struct {
	// Node is set by kubectl-qos.
	Node      string `json:"node,omitempty"`
	Container `json:",inline"`
	Findings  []Finding `json:"findings"`
}

// Kind is the resource that a container waits for.
type Kind string

// These are the kinds. In a Finding, Part is the disk for IO, and the number of the cache for Bandwidth and Cache.
const (
	IO        Kind = "io"
	MemoryUse Kind = "memory"
	CPU       Kind = "cpu"
	Bandwidth Kind = "memory-bandwidth"
	Cache     Kind = "cache"
)

// Finding is an interval in which a container suffered.
type Finding struct {
	Kind Kind `json:"resource"`
	// Part is the disk or the cache that the culprits use more. It is empty if there is none.
	Part string    `json:"part,omitempty"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// During is the part of the interval in which the container waited. Before is the same part for the time outside of
	// the interval. For Bandwidth they are bytes per second of CPU time, and for Cache they are bytes.
	Before float64 `json:"before"`
	During float64 `json:"during"`
	// Always is true if the container waited all the time. Then there is no Before.
	Always bool `json:"always"`
	// Own lists causes in the container itself. If its own limits explain the waiting, there are no Culprits.
	Own []Own `json:"own,omitempty"`
	// Culprits are the containers that used more of the same resource in the interval. The one that fits best is first.
	Culprits []Culprit `json:"culprits,omitempty"`
}

// Use is how much of a resource was used. During is the mean in the interval, and Before is the mean outside of it.
type Use struct {
	classes.Series `json:",inline"`
	Before         float64 `json:"before"`
	During         float64 `json:"during"`
}

// Own is a cause in the container itself.
type Own struct {
	Reason OwnReason `json:"reason"`
	// For OwnThrottled, the means in Use are parts of the time. Limit is the limit that was reached, or 0.
	Use   `json:",inline"`
	Limit float64 `json:"limit,omitempty"`
	// Pod is true if the limit is one of the whole pod. The containers of the pod are then compared with each other.
	Pod bool `json:"pod,omitempty"`
}

// OwnReason is the reason why a container itself is the cause.
type OwnReason string

// These are the reasons.
const (
	OwnThrottled   OwnReason = "throttled"    // the CPU time is at the limit of the container
	OwnMemoryLimit OwnReason = "memory-limit" // the memory is at memory.high or memory.max of the container
	OwnClassLimit  OwnReason = "class-limit"  // the use is at the limit of the container's class
	OwnUse         OwnReason = "uses-more"    // the container itself uses more of the resource
)

// Culprit is a container that used more of the resource in the interval. This is a correlation, not a proof.
type Culprit struct {
	Container `json:",inline"`
	// Use has the series of the container that rose most.
	Use `json:",inline"`
	// Share is this container's part of the rise of all containers. Correlation is the correlation of its use with the
	// waiting.
	Share       float64 `json:"share"`
	Correlation float64 `json:"correlation"`
	// Ended is true if the container does not run any more.
	Ended bool `json:"ended"`
	// Suggestion is the smallest change that would help. It is nil if no class of the node would help.
	Suggestion *Offer `json:"suggestion,omitempty"`
}

// Offer is a class of the node, with its limit on one series.
type Offer struct {
	Resource string `json:"resource"`
	Class    string `json:"class"`
	// Name is the setting as users know it. Bound is per second if the series is cumulative.
	Name   string         `json:"limit"`
	Series classes.Series `json:"-"`
	Bound  float64        `json:"bound"`
	// Mutable is true if a running container can get the class.
	Mutable bool `json:"mutable"`
	// Pod is true if the whole pod has the class.
	Pod bool `json:"pod"`
}
