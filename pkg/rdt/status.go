// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// These are the types of conditions of the live configuration. Another such type is qos.ConditionConfigurationApplied, which
// also reports why the last attempt to replace or restore the live configuration failed.
const (
	ConditionMounted     = "ResctrlMounted"
	ConditionCLOSIDs     = "CLOSIDsFree"
	ConditionForeign     = "ForeignGroups"
	ConditionDraining    = "ClassesDraining"
	ConditionCodeAndData = "CodeAndDataApart"
	ConditionBandwidth   = "BandwidthExact"
	ConditionOwnCache    = "CacheNotShared"
	ConditionCacheSizes  = "CacheSizes"
	ConditionDenials     = "AnnotationDenials"
	ConditionFeatures    = "FeaturesMonitored"
)

// live is the applied state. It is immutable.
type live struct {
	// config is the applied configuration. It is nil before the first Apply. `machine` has the state of resctrl
	// before this configuration was applied.
	config     *Config
	machine    *machine
	resolution Resolution
	// offered has the configured classes. `draining` has the classes that are not configured any more but still have a group.
	// These include classes of a former run of this program.
	offered, draining []string
	// effective has the kernel's values of all managed groups, including the groups of draining classes. It includes
	// the root group if the configuration sets the root group.
	effective map[string]resctrl.Schemata
	// `memory` is the number of bytes that the memory modules can transfer in a second. It is 0 if that is unknown.
	memory float64
	// err is the last error of an attempt to replace or restore the configuration. `unavailable` is the last of these
	// errors that has the type *classes.Unavailable.
	err         error
	unavailable *classes.Unavailable
}

// refused returns a copy of the state with `err`, the reason why the configuration could not be replaced or restored.
func (l *live) refused(err error) *live {
	next := *l
	next.err = err
	errors.As(err, &next.unavailable)
	return &next
}

func (l *live) status() classes.BackendStatus {
	status := classes.BackendStatus{Unavailable: l.unavailable}
	if l.err != nil {
		status.Conditions = append(status.Conditions, classes.Condition{
			Type: qos.ConditionConfigurationApplied, Reason: refusalReason(l.err), Message: l.err.Error(),
		})
	}
	if l.config == nil {
		return status
	}

	status.Features = features(l.machine.info)
	status.Degraded = map[string]string{}
	for class, reasons := range l.resolution.Ignored {
		if class != classes.SystemDefault {
			status.Degraded[class] = strings.Join(reasons, "; ")
		}
	}
	if l.err == nil {
		status.Conditions = append(status.Conditions, classes.Condition{
			Type: qos.ConditionConfigurationApplied, Healthy: true, Reason: qos.ReasonApplied,
			Message: fmt.Sprintf("%d classes have resctrl groups", len(l.offered)),
		})
	}
	status.Conditions = slices.Concat(status.Conditions, l.machineConditions(), l.classConditions())
	return status
}

func refusalReason(err error) string {
	if unavailable := (*classes.Unavailable)(nil); errors.As(err, &unavailable) {
		return unavailable.Reason
	}
	if errors.Is(err, ErrRollback) {
		return "RollbackFailed"
	}
	return qos.ReasonRefused
}

func (l *live) machineConditions() []classes.Condition {
	foreign := l.machine.foreign()
	total, limited := l.machine.limit()
	var former []string
	for _, class := range l.draining {
		former = append(former, groups.Of(class))
	}
	uses, used := l.machine.closidUses(former)
	free := max(0, total-used-len(l.offered))
	closids := classes.Condition{Type: ConditionCLOSIDs, Healthy: true, Reason: "Free",
		Message: fmt.Sprintf("%d of %s are free: classes use %d, %s", free, limited, len(l.offered), strings.Join(uses, ", "))}
	if free == 0 {
		closids.Reason = "Exhausted" // still healthy, because every class has its own CLOSID
	}

	conditions := []classes.Condition{
		{Type: ConditionMounted, Healthy: true, Reason: "Mounted",
			Message: fmt.Sprintf("resctrl is mounted at %s with %s", l.machine.MountPoint(), strings.Join(l.machine.Options(), ","))},
		closids,
	}
	if len(foreign) > 0 {
		conditions = append(conditions, classes.Condition{Type: ConditionForeign, Healthy: true, Reason: "Untouched",
			Message: "left as they are: " + strings.Join(foreign, ", ")})
	}
	return conditions
}

func (l *live) classConditions() []classes.Condition {
	var conditions []classes.Condition
	if len(l.draining) > 0 {
		conditions = append(conditions, classes.Condition{Type: ConditionDraining, Healthy: true, Reason: "InUse",
			Message: "classes that are no longer configured are kept until their containers end: " + strings.Join(l.draining, ", ")})
	}

	for _, cache := range []struct{ level, option string }{{resctrl.L2, "cdpl2"}, {resctrl.L3, "cdp"}} {
		if len(l.machine.info.Schemas(cache.level)) == 1 && l.config.wantsCodeAndData(cache.level) {
			conditions = append(conditions, classes.Condition{Type: cache.level + ConditionCodeAndData, Reason: string(resctrl.WrongMountOptions),
				Message: fmt.Sprintf("code and data of %[1]s are configured separately, but resctrl is mounted without %[2]s, so the unified shares apply; "+
					"mount resctrl with -o %[2]s if the CPU supports that", cache.level, cache.option)})
		}
	}

	for _, feature := range l.config.monitored.Lacks(l.machine.info) {
		conditions = append(conditions, classes.Condition{Type: ConditionFeatures, Reason: "CannotMonitor",
			Message: fmt.Sprintf("the CPU or the kernel cannot monitor %s (%s is not in info/%s/mon_features); remove it from the features of monitoring",
				feature.Name, feature.Events[0], feature.Events[0].Feature())})
	}
	if condition, shares := l.sharedCache(); shares {
		conditions = append(conditions, condition)
	}

	var rounded []string
	for _, name := range slices.Sorted(maps.Keys(l.resolution.Groups)) {
		wanted := l.resolution.Asked[name].RestrictedTo(l.resolution.Groups[name]) // without values that are left out
		if asked, has := wanted.Values(resctrl.MB), l.effective[name].Values(resctrl.MB); asked != has {
			rounded = append(rounded, fmt.Sprintf("%s has %s for %s", className(name), has, asked))
		}
	}
	if len(rounded) > 0 {
		conditions = append(conditions, classes.Condition{Type: ConditionBandwidth, Healthy: true, Limited: true, Reason: "Rounded",
			Message: "the kernel rounds memory bandwidth: " + strings.Join(rounded, ", ")})
	}

	if len(l.resolution.Sizes) > 0 {
		conditions = append(conditions, classes.Condition{Type: ConditionCacheSizes, Healthy: true, Reason: "RoundedUp",
			Message: "sizes of caches are rounded up to bits of their masks: " + strings.Join(l.resolution.Sizes, ", ")})
	}

	if len(l.config.denials) > 0 {
		conditions = append(conditions, classes.Condition{Type: ConditionDenials, Reason: "NotEnforced",
			Message: fmt.Sprintf("denyPodAnnotation and denyContainerAnnotation (%s) have no effect; "+
				"to limit who can request a class, use an admission policy that checks the annotations", strings.Join(l.config.denials, ", "))})
	}
	return conditions
}

// sharedCache reports which classes have bits of a cache that devices or other hardware also use, and which of these
// classes have no other bits of that cache.
func (l *live) sharedCache() (condition classes.Condition, shares bool) {
	var some, only []string
	for _, name := range slices.Sorted(maps.Keys(l.resolution.Groups)) {
		var partly, wholly bool
		for domain, mask := range l.resolution.Groups[name] {
			if bits := l.machine.info.Caches[domain.Schema].SharedBits(domain, mask); domain.Schema.Level() != "" && bits != 0 {
				partly, wholly = true, wholly || bits == mask
			}
		}
		switch {
		case wholly:
			only = append(only, className(name))
		case partly:
			some = append(some, className(name))
		}
	}
	if len(some)+len(only) == 0 {
		return classes.Condition{}, false
	}

	condition = classes.Condition{Type: ConditionOwnCache, Healthy: len(only) == 0, Reason: "PartlyShared"}
	var texts []string
	if len(only) > 0 {
		condition.Reason = "OnlyShared"
		texts = append(texts, "all bits of "+strings.Join(only, ", ")+" (give them masks with other bits)")
	}
	if len(some) > 0 {
		texts = append(texts, "some bits of "+strings.Join(some, ", "))
	}
	condition.Message = "devices or other hardware also use cache bits of classes (shareable_bits, io_alloc_cbm): " + strings.Join(texts, "; ")
	return condition, true
}

// className returns the name that configurations use for the class of a group.
func className(group string) string { return cmp.Or(groups.ClassOf(group), groups.RootClass) }
