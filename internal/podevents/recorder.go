// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podevents writes events about pods, and about the NodeQOSResources of the node. It writes a series of similar occurrences as one event with a count.
package podevents

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

const (
	// ClassRefused warns that the requested classes prevented the creation of a container or pod.
	ClassRefused = "QOSClassRefused"
	// ClassChanged reports that the class of a running container has changed.
	ClassChanged = "QOSClassChanged"
	// ChangeRefused warns that the pod's annotations request a change that was not made.
	ChangeRefused = "QOSChangeRefused"
	// ClassRemoved warns that the pod's class was removed, and that the pod is evicted or cannot be evicted.
	ClassRemoved = "QOSClassRemoved"
	// ClassNotOffered warns that a waiting pod requests a class that no node offers.
	ClassNotOffered = "QOSClassNotOffered"
	// ClassFilesRefused warns that the class files of the node have errors. It is an event of the node's NodeQOSResources.
	ClassFilesRefused = "QOSClassFilesRefused"
)

const (
	component = "qos-kubelet-shim"
	// maxMessage and maxName are the API server's limits for the message and the name of an event, in bytes.
	maxMessage = 1024
	maxName    = 253
)

// Record describes a series: similar occurrences at one pod or container, which are written as one event.
type Record struct {
	Reason  string
	Warning bool
	// Container is the container that the event is about. It is empty if the event is about the pod itself.
	Container string
	// Series distinguishes the event series that have the same Reason and Container. Records of one series may have
	// different values of Message.
	Series, Message string
	// Count is the number of occurrences between First and Last.
	Count       uint64
	First, Last time.Time
}

// identity returns the fields that all records of one series share.
func (r Record) identity() [3]string { return [...]string{r.Container, r.Reason, r.Series} }

// Pod identifies a pod in the API.
type Pod struct {
	Namespace, Name string
	UID             types.UID
}

// Recorder writes events synchronously. Its caller decides about the rate of writes and about retries.
type Recorder struct {
	client kubeapi.Core
	writes *kubeapi.Writes
	node   string
}

// NewRecorder makes a recorder that counts its write requests with the given Writes. It does no I/O.
func NewRecorder(client kubeapi.Core, writes *kubeapi.Writes, node string) *Recorder {
	return &Recorder{client: client, writes: writes, node: node}
}

// Write creates the event of a record. If the event already exists, Write raises the event's count. The event may be
// from before a restart of the shim. If the namespace is being deleted, Write drops the record.
func (r *Recorder) Write(ctx context.Context, pod Pod, record Record) error {
	err := r.write(ctx, r.eventOf(referenceTo(pod), record), record)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// WriteOnce creates the event of a record. If the event exists, WriteOnce leaves it unchanged, because another node may have
// written it.
func (r *Recorder) WriteOnce(ctx context.Context, pod Pod, record Record) error {
	event := r.eventOf(referenceTo(pod), record)
	_, err := r.client.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	if err = r.writes.Count("event", err); apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

func referenceTo(pod Pod) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// WriteNode works like Write, for an event of the NodeQOSResources of the recorder's node. Events of objects without a namespace are in
// the namespace "default".
func (r *Recorder) WriteNode(ctx context.Context, uid types.UID, record Record) error {
	about := corev1.ObjectReference{
		APIVersion: nodeqosv1alpha1.GroupVersion.String(), Kind: nodeqosv1alpha1.Kind, Name: r.node, UID: uid,
	}
	return r.write(ctx, r.eventOf(about, record), record)
}

func (r *Recorder) write(ctx context.Context, event *corev1.Event, record Record) error {
	events := r.client.Events(event.Namespace)
	if record.Count == 1 { // usually, the event does not exist yet
		_, err := events.Create(ctx, event, metav1.CreateOptions{})
		if err = r.writes.Count("event", err); !apierrors.IsAlreadyExists(err) {
			return err
		}
	}

	// An empty patch returns the existing event. It does not need the permission to read all events.
	existing, err := events.Patch(ctx, event.Name, types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) { // Kubernetes deletes events after an hour
		_, err = events.Create(ctx, event, metav1.CreateOptions{})
		return r.writes.Count("event", err)
	}
	if err != nil {
		return err
	}

	count, changed := countOf(existing, record)
	if !changed {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": existing.UID, "resourceVersion": existing.ResourceVersion},
		"message":  event.Message, "count": count, "lastTimestamp": event.LastTimestamp,
	})
	if err != nil {
		return err
	}
	_, err = events.Patch(ctx, event.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return r.writes.Count("event", err)
}

// countOf returns the count of an existing event plus the count of a record. `changed` is false if the event already
// includes the record, e.g. after a restart. The comparison truncates times, because the API's times are in whole
// seconds.
func countOf(event *corev1.Event, record Record) (count int32, changed bool) {
	last := event.LastTimestamp.Time
	switch {
	case !record.Last.Truncate(time.Second).After(last):
		return event.Count, false
	case record.First.Truncate(time.Second).After(last):
		return count32(uint64(max(event.Count, 0)) + record.Count), true
	}
	return max(event.Count+1, count32(record.Count)), true
}

func count32(count uint64) int32 { return int32(min(count, 1<<31-1)) } //nolint:gosec // it is bounded

func (r *Recorder) eventOf(about corev1.ObjectReference, record Record) *corev1.Event {
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault), Name: nameOf(about, record)},
		InvolvedObject: about,
		Reason:         record.Reason, Message: kubeapi.Cut(record.Message, maxMessage, " … (cut)"), Type: corev1.EventTypeNormal,
		Source:              corev1.EventSource{Component: component, Host: r.node},
		ReportingController: component, ReportingInstance: r.node,
		FirstTimestamp: metav1.NewTime(record.First), LastTimestamp: metav1.NewTime(record.Last), Count: count32(record.Count),
	}

	if record.Warning {
		event.Type = corev1.EventTypeWarning
	}
	if record.Container != "" {
		event.InvolvedObject.FieldPath = "spec.containers{" + record.Container + "}"
	}
	return event
}

// nameOf returns the name of a record's event. The name depends only on the arguments, so that a restarted recorder
// finds the existing event.
func nameOf(about corev1.ObjectReference, record Record) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{string(about.UID), record.Container, record.Reason, record.Series}, "\x00")))
	suffix := "." + hex.EncodeToString(sum[:8])
	name := about.Name
	if most := maxName - len(suffix); len(name) > most {
		name = strings.TrimRight(name[:most], "-.")
	}
	return name + suffix
}
