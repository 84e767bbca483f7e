// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/podrequests"
)

const (
	// maxEventMessage is what Kubernetes takes, in bytes.
	maxEventMessage = 1024
	maxNameLength   = 253
	// eventInterval is the shortest time between two writes of one event.
	eventInterval = 5 * time.Minute
)

// occurrence is something that happened to a pod, maybe repeatedly.
type occurrence struct {
	// reason is that of the event; warning its type.
	reason  string
	warning bool
	// container is empty for the pod itself.
	container string
	// series tells occurrences apart that have their own events; the message may vary from one time to the next.
	series, message string
	count           uint64
	first, last     time.Time
}

// eventName is the same for the same, also after a restart, so that it is one event.
func eventName(pod *corev1.Pod, o occurrence) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{string(pod.UID), o.container, o.reason, o.series}, "\x00")))
	suffix := "." + hex.EncodeToString(sum[:8])
	name := pod.Name
	if most := maxNameLength - len(suffix); len(name) > most {
		name = strings.TrimRight(name[:most], "-.")
	}
	return name + suffix
}

func eventOf(pod *corev1.Pod, node string, o occurrence) *corev1.Event {
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: eventName(pod, o)},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		},
		Reason: o.reason, Message: cut(o.message, maxEventMessage), Type: corev1.EventTypeNormal,
		Source:              corev1.EventSource{Component: FieldManager, Host: node},
		ReportingController: FieldManager, ReportingInstance: node,
		FirstTimestamp: metav1.NewTime(o.first), LastTimestamp: metav1.NewTime(o.last), Count: count32(o.count),
	}
	if o.warning {
		event.Type = corev1.EventTypeWarning
	}
	if o.container != "" {
		event.InvolvedObject.FieldPath = "spec.containers{" + o.container + "}"
	}
	return event
}

func count32(count uint64) int32 { return int32(min(count, 1<<31-1)) } //nolint:gosec // it is bounded

// raised says how often something happened by now, of which an event tells already, maybe one of an earlier life of this
// process or of the plugin; ok is false when the event tells all. The API has times in whole seconds.
func raised(event *corev1.Event, o occurrence) (count int32, ok bool) {
	if !o.last.Truncate(time.Second).After(event.LastTimestamp.Time) {
		return event.Count, false
	}
	if o.first.Truncate(time.Second).After(event.LastTimestamp.Time) {
		return count32(uint64(max(event.Count, 0)) + o.count), true
	}
	return max(event.Count+1, count32(o.count)), true
}

func refusalsOf(refusals []*qosv1alpha1.Refusal) []occurrence {
	var list []occurrence
	for _, r := range refusals {
		list = append(list, occurrence{
			reason: EventRefused, warning: true, container: r.GetContainer(), series: r.GetReason(), message: r.GetMessage(),
			count: max(r.GetCount(), 1), first: r.GetFirstTime().AsTime(), last: r.GetLastTime().AsTime(),
		})
	}
	return list
}

func changesRefused(changes []podrequests.Refused) []occurrence {
	var list []occurrence
	for _, r := range changes {
		list = append(list, occurrence{
			reason: EventChangeRefused, warning: true, container: r.Container, series: r.Reason, message: r.Message,
			count: r.Count, first: r.First, last: r.Last,
		})
	}
	return list
}

// changed tells which containers have another class than before; a container is the same while its ID is.
func changed(before, after *qosv1alpha1.PodAssignments, now time.Time) []occurrence {
	var list []occurrence
	for _, c := range after.GetContainers() {
		i := slices.IndexFunc(before.GetContainers(), func(b *qosv1alpha1.ContainerAssignments) bool { return b.GetId() == c.GetId() })
		if i < 0 {
			continue
		}
		parts := differences(before.GetContainers()[i].GetQosResources(), c.GetQosResources())
		if len(parts) == 0 {
			continue
		}
		message := c.GetName() + ": " + strings.Join(parts, ", ")
		list = append(list, occurrence{
			reason: EventChanged, container: c.GetName(), series: message, message: message, count: 1, first: now, last: now,
		})
	}
	return list
}

// differences are between two states of one container. A resource that comes or goes is not a change of its class.
func differences(before, after []*qosv1alpha1.Assignment) []string {
	var parts []string
	for _, now := range after {
		for _, was := range before {
			if was.GetName() == now.GetName() && was.GetClass() != now.GetClass() {
				parts = append(parts, now.GetName()+" "+podrequests.ClassName(was.GetClass())+" -> "+podrequests.ClassName(now.GetClass()))
			}
		}
	}
	return parts
}
