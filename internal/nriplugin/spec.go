// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"encoding/json"
	"fmt"

	"github.com/containerd/nri/pkg/api"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// originalsAnnotation is an annotation of a container. For each setting that the plugin has changed at the creation,
// it has the value that the container would have had otherwise. The keys are the results of Setting.String. The
// runtime returns the annotation to a plugin that has restarted.
const originalsAnnotation = "originals." + classes.Domain

// limitsOf returns the limits in a container's resources.
func limitsOf(resources *api.LinuxResources) classes.Spec {
	return classes.Spec{
		MemoryLimit: resources.GetMemory().GetLimit().GetValue(), CPUQuota: resources.GetCpu().GetQuota().GetValue(),
		CPUPeriod: resources.GetCpu().GetPeriod().GetValue(), CPUShares: resources.GetCpu().GetShares().GetValue(),
	}
}

// replaced returns the values that a container has for the settings of an adjustment.
func replaced(spec classes.Spec, adjustment classes.Adjustment) classes.Adjustment {
	had := classes.Adjustment{}
	for setting := range adjustment {
		if value, ok := spec.Settings[setting]; ok {
			had[setting] = value
		}
	}
	return had
}

func parseOriginals(text string) classes.Adjustment {
	var had classes.Adjustment
	if json.Unmarshal([]byte(text), &had) != nil {
		return nil
	}
	return had
}

// adjustmentOf returns what the runtime must set for the classes of a new container. It returns nil if the container has no class.
func (s *session) adjustmentOf(h classes.Holder, a classes.Adjustment, assignments []classes.Assignment) (*api.ContainerAdjustment, error) {
	record, err := state.Record(assignments)
	if err != nil || record == "" {
		return nil, err
	}
	adjust := &api.ContainerAdjustment{}
	adjust.AddAnnotation(state.RecordAnnotation, record)

	if had := replaced(h.Spec, a); len(had) > 0 {
		text, err := json.Marshal(had)
		if err != nil {
			return nil, fmt.Errorf("record the original values: %w", err)
		}
		adjust.AddAnnotation(originalsAnnotation, string(text))
	}
	if err := setAll(adjust, a, s.stub.RuntimeNRIVersion()); err != nil {
		return nil, s.plugin.node.Refuse(h, fmt.Errorf("%s: %w", h, err))
	}
	return adjust, nil
}
