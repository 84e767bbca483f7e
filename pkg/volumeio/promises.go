// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

var _ classes.Promiser = (*Backend)(nil)

// Promises implements classes.Promiser. If several volumes are on one disk, the lowest limits are in force. The bounds
// of the other classes then hold, too.
func (b *Backend) Promises(volume classes.Holder, name string) (promises []classes.Promise) {
	class, err := b.class(name)
	if err != nil {
		return nil
	}
	machine := b.inspected()
	for number := range strings.SplitSeq(b.Device(volume.ID), ",") {
		dev, err := iocgroup.ParseDevice(number)
		disk := machine.PartName(dev)
		if err != nil || disk == "" {
			continue
		}
		for kind, c := range counters() {
			if limit := class.limits[kind]; limit > 0 {
				promises = append(promises, classes.Promise{
					Name: limitFields()[kind], Use: classes.Series{Measure: c.used.Name, Part: disk},
					Bound: float64(limit), Burst: iocgroup.LargestRequests()[kind], Tolerance: iocgroup.LimitTolerance,
				})
			}
		}
	}
	return promises
}
