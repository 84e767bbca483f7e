// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Types of conditions. All but the first are about the live configuration, as of when it was applied.
const (
	ConditionApplied     = "ConfigurationApplied"
	ConditionMounted     = "ResctrlMounted"
	ConditionCLOSIDs     = "CLOSIDsFree"
	ConditionForeign     = "ForeignGroups"
	ConditionDraining    = "ClassesDraining"
	ConditionCodeAndData = "CodeAndDataApart"
	ConditionBandwidth   = "BandwidthExact"
	ConditionDenials     = "AnnotationDenials"
)

// refused is the same live configuration, with the failure to replace it.
func (l *live) refused(err error) *live {
	next := *l
	condition := classes.Condition{Type: ConditionApplied, Reason: "Refused", Message: err.Error()}
	if rollback := (*RollbackError)(nil); errors.As(err, &rollback) {
		condition.Reason = "RollbackFailed"
	}
	if unavailable := (*classes.Unavailable)(nil); errors.As(err, &unavailable) {
		next.status.Unavailable = unavailable
		condition.Reason = unavailable.Reason
	}
	next.status.Conditions = withCondition(l.status.Conditions, condition)
	return &next
}

// withCondition is a copy in which the condition has replaced the one of its type.
func withCondition(conditions []classes.Condition, condition classes.Condition) []classes.Condition {
	others := slices.DeleteFunc(slices.Clone(conditions), func(c classes.Condition) bool { return c.Type == condition.Type })
	return append([]classes.Condition{condition}, others...)
}

// withDraining is the same live configuration after classes have been released.
func (l *live) withDraining(draining map[string]bool) *live {
	next := *l
	next.draining = draining
	next.effective = maps.Clone(l.effective)
	maps.DeleteFunc(next.effective, func(name string, _ Schemata) bool {
		return name != rootGroup && !l.offered[classOf(name)] && !draining[classOf(name)]
	})
	conditions := slices.DeleteFunc(slices.Clone(l.status.Conditions), func(c classes.Condition) bool { return c.Type == ConditionDraining })
	next.status.Conditions = slices.Concat(conditions, drainingCondition(draining))
	return &next
}

func describeStatus(config *Config, resolution *Resolution, m *machine, next *live) classes.BackendStatus {
	status := classes.BackendStatus{Degraded: map[string]string{}}
	for class, reasons := range resolution.Ignored {
		if class != classes.SystemDefault {
			status.Degraded[class] = strings.Join(reasons, "; ")
		}
	}
	status.Conditions = slices.Concat(
		[]classes.Condition{
			{Type: ConditionApplied, Healthy: true, Reason: "Applied",
				Message: fmt.Sprintf("%d classes have their resctrl groups", len(next.offered))},
			{Type: ConditionMounted, Healthy: true, Reason: "Mounted",
				Message: fmt.Sprintf("resctrl is mounted at %s with %s", m.mount.point, strings.Join(m.mount.options, ","))},
			closidCondition(m, next),
		},
		foreignCondition(m),
		drainingCondition(next.draining),
		codeAndDataConditions(config, m.info),
		bandwidthCondition(resolution, next.effective),
		denialsCondition(config),
	)
	return status
}

func closidCondition(m *machine, next *live) classes.Condition {
	foreign := len(m.foreign())
	used := 1 + foreign + len(next.offered) + len(next.draining)
	free := m.info.CLOSIDs - used
	condition := classes.Condition{Type: ConditionCLOSIDs, Healthy: true, Reason: "Free"}
	if free <= 0 {
		condition.Reason = "Exhausted" // every class has its own, so this is as healthy as before
	}
	condition.Message = fmt.Sprintf("%d of %d CLOSIDs are free: the root group has 1, classes %d, former classes %d, groups of others %d",
		max(free, 0), m.info.CLOSIDs, len(next.offered), len(next.draining), foreign)
	return condition
}

func foreignCondition(m *machine) []classes.Condition {
	foreign := m.foreign()
	if len(foreign) == 0 {
		return nil
	}
	return []classes.Condition{{Type: ConditionForeign, Healthy: true, Reason: "Untouched",
		Message: "left as they are: " + strings.Join(foreign, ", ")}}
}

func drainingCondition(draining map[string]bool) []classes.Condition {
	if len(draining) == 0 {
		return nil
	}
	return []classes.Condition{{Type: ConditionDraining, Healthy: true, Reason: "InUse",
		Message: "no longer configured, and kept until what runs in them ends: " + names(draining)}}
}

// codeAndDataConditions tell who asked for code and data apart that they are not.
func codeAndDataConditions(config *Config, info Info) []classes.Condition {
	var conditions []classes.Condition
	for level, option := range map[string]string{L2: "cdpl2", L3: "cdp"} {
		if schemas := info.Schemas(level); len(schemas) == 1 && config.wantsCodeAndData(level) {
			conditions = append(conditions, classes.Condition{Type: level + ConditionCodeAndData, Reason: WrongMountOptions,
				Message: fmt.Sprintf("code and data of %s are configured apart, but resctrl is mounted without %s: "+
					"the unified shares count; mount it with -o %s if the CPU has that", level, option, option)})
		}
	}
	slices.SortFunc(conditions, func(a, b classes.Condition) int { return strings.Compare(a.Type, b.Type) })
	return conditions
}

// bandwidthCondition tells whose memory bandwidth the kernel has rounded.
func bandwidthCondition(resolution *Resolution, effective map[string]Schemata) []classes.Condition {
	var rounded []string
	for _, name := range slices.Sorted(maps.Keys(resolution.Groups)) {
		asked, has := resolution.Groups[name][MB], effective[name][MB]
		if !maps.Equal(asked, has) {
			rounded = append(rounded, fmt.Sprintf("%s has %s for %s", classOf(name), has.format(MB), asked.format(MB)))
		}
	}
	if len(rounded) == 0 {
		return nil
	}
	return []classes.Condition{{Type: ConditionBandwidth, Healthy: true, Reason: "Rounded",
		Message: "the kernel rounds memory bandwidth: " + strings.Join(rounded, ", ")}}
}

func denialsCondition(config *Config) []classes.Condition {
	if len(config.denials) == 0 {
		return nil
	}
	return []classes.Condition{{Type: ConditionDenials, Reason: "NotEnforced",
		Message: fmt.Sprintf("denyPodAnnotation and denyContainerAnnotation (%s) have no effect; limit who gets a class by an admission policy on the annotations",
			strings.Join(config.denials, ", "))}}
}

// names of a set, for people.
func names(set map[string]bool) string {
	if len(set) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(set)), ", ")
}
