// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// rates has the names of the limits in class files and the measures that they limit, in the order of iocgroup.RateKeys.
func rates() [iocgroup.RateKinds]struct{ name, measure string } {
	return [...]struct{ name, measure string }{
		{"ThrottleReadBps", readBytes}, {"ThrottleWriteBps", writeBytes}, {"ThrottleReadIOPS", reads}, {"ThrottleWriteIOPS", writes},
	}
}

var _ classes.Promiser = (*Backend)(nil)

// Promises implements classes.Promiser. Each promise is FromZero, because the kernel lists only the disks that a cgroup
// has used.
func (b *Backend) Promises(_ classes.Holder, class string) (promises []classes.Promise) {
	s := b.live.Load()
	values, err := s.valuesOf(class)
	if err != nil {
		return nil
	}
	for _, setting := range values.Sorted() {
		if !setting.IsLimit() {
			continue
		}
		for kind, rate := range rates() {
			limit, disk := values[setting][kind], s.machine.PartName(setting.Device)
			if limit == 0 || disk == "" { // the kernel does not list a disk without a name
				continue
			}
			promises = append(promises, classes.Promise{
				Name: rate.name, Use: classes.Series{Measure: rate.measure, Part: disk}, FromZero: true,
				Bound: float64(limit), Burst: iocgroup.LargestRequests()[kind], Tolerance: iocgroup.LimitTolerance,
				Waited: classes.Series{Measure: waiting},
			})
		}
	}
	return promises
}
