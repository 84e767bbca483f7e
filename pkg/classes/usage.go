// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"context"
	"strings"
	"time"
)

// Measure describes something that the kernel measures, e.g. the bytes that are read from a disk.
type Measure struct {
	// Name is the name in metrics, without a prefix. It follows the conventions of Prometheus, and ends in "_total" if the
	// measure is cumulative. Help is the description in metrics.
	Name, Help string
	// Part is the label that distinguishes the values of the measure, e.g. "device". It is empty if the measure has one value.
	Part string
}

// Series identifies one value of a measure.
type Series struct {
	// Measure is the name of the measure. Part is the value of the label Measure.Part, e.g. "sda".
	Measure string `json:"name"`
	Part    string `json:"part,omitempty"`
}

// Cumulative reports whether the value is a counter, which only grows.
func (s Series) Cumulative() bool { return strings.HasSuffix(s.Measure, "_total") }

// Reading has the values that the kernel shows at one moment. It lacks the values that the kernel does not measure now.
type Reading map[Series]float64

// ClassMeter is a Backend that measures each class as a whole.
type ClassMeter interface {
	Backend
	// MeasureClass reads the values of a class or of the system default. A Monitor also reads the values of the
	// containers in the class.
	MeasureClass(ctx context.Context, class string) (ClassReading, error)
}

// ClassReading has the values of a class at one moment.
type ClassReading struct {
	Class Reading
	// Containers maps the ID of each monitored container in the class to its values.
	Containers map[string]Reading
}

// HolderMeter is a Backend that measures single containers or pods. The values of a class are the sums of the
// cumulative values of its holders.
type HolderMeter interface {
	Backend
	// MeasureHolder reads the values of a running container or pod, whatever its class is. The error is ErrEnded if the
	// kernel no longer has the values, because the container or pod has ended.
	MeasureHolder(ctx context.Context, target Holder) (Reading, error)
	// SumsEnded reports whether the values of a pod include those of its ended containers. It does no I/O.
	SumsEnded() bool
}

// VolumeMeter is a Backend that measures the use of volumes' disks by pods, and the limits that apply to this use.
type VolumeMeter interface {
	Backend
	// MeasureVolume reads the values of a volume of a running container. The error is ErrEnded if the pod has ended.
	MeasureVolume(ctx context.Context, volume Holder) (Reading, error)
}

// Monitor is a ClassMeter that also measures single containers. The kernel can monitor only a few containers at a time,
// so the configuration selects the classes whose containers are monitored. The methods may be called at any time.
type Monitor interface {
	ClassMeter
	// Monitors reports whether the live configuration selects a class for monitoring. It does no I/O.
	Monitors(class string) bool
	// Monitor begins to monitor the container if the configuration selects the container's class, and otherwise ends
	// the monitoring. Containers that cannot be monitored run as before. Status reports their number and the reasons.
	Monitor(ctx context.Context, container Holder, class string)
	// MonitorAll does the same as Monitor for all running containers, which are in the order of their creation. If the kernel
	// can monitor only some of the selected containers, MonitorAll takes them evenly from all classes and pods. To do so, it may
	// end the monitoring of a container.
	MonitorAll(ctx context.Context, running []InClass)
	// Monitored returns the IDs of the containers for which the Monitor keeps state: those that are monitored, and those that
	// are selected and cannot be monitored yet. It does no I/O.
	Monitored() []string
	// Tracks reports whether the result of Monitored includes a container. It does no I/O.
	Tracks(id string) bool
	// Unmonitor ends the monitoring of a container, and forgets the container.
	Unmonitor(id string)
}

// Rotator is a Monitor that measures some containers in turn.
type Rotator interface {
	Monitor
	// RotateEvery returns the longest interval between calls of MonitorAll. It is 0 if the live configuration does not
	// measure containers in turn.
	RotateEvery() time.Duration
}

// InClass is a container and its observed class of a resource.
type InClass struct {
	Holder
	Class string
}

// Monitored is the number of containers of a class that are monitored.
type Monitored struct {
	Containers int
	// Missing is the number of selected containers that are not monitored, by reason. It has all reasons that the backend knows.
	Missing map[string]int
}
