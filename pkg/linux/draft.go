// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"fmt"
	"math"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

var _ classes.Drafter = (*Backend)(nil)

// Draft implements classes.Drafter. The class sets memory.high, in MiB.
func (b *Backend) Draft(class string, bounds []classes.Bound) map[string]any {
	for _, bound := range bounds {
		if bound.Use.Measure == memoryUsed {
			high := fmt.Sprintf("%dMi", int64(math.Ceil(max(bound.Value, leastHigh)/(1<<20))))
			return map[string]any{"classes": map[string]any{class: map[string]any{"memory": map[string]any{"high": high}}}}
		}
	}
	return nil
}
