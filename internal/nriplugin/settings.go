// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"fmt"
	"strconv"

	"github.com/containerd/nri/pkg/api"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// nriSetting is how NRI sets and reports one kind of setting. A new setting needs a row in nriSettings and its name in pkg/classes.
type nriSetting struct {
	name classes.SettingName
	// since is the first NRI version that has the field. A runtime with an older NRI drops the field without an error.
	// `since` is empty if the plugin itself sets the value when the container starts, or if all supported runtimes have
	// the field.
	since string
	// set adds a value to an adjustment.
	set func(a *api.ContainerAdjustment, key, value string) error
	// `adjusted` returns the values in an adjustment, and `described` returns those in a container's specification, by
	// Setting.Key.
	adjusted  func(a *api.ContainerAdjustment) map[string]string
	described func(c *api.Container) map[string]string
}

// nriSettings returns the settings that NRI has (its LinuxContainerAdjustment and ContainerAdjustment).
func nriSettings() []nriSetting {
	return []nriSetting{{
		name: classes.SettingClosID,
		set:  func(a *api.ContainerAdjustment, _, value string) error { a.SetLinuxRDTClosID(value); return nil },
		adjusted: func(a *api.ContainerAdjustment) map[string]string {
			return single(a.GetLinux().GetRdt().GetClosId().GetValue())
		},
		described: func(c *api.Container) map[string]string { return single(c.GetLinux().GetRdt().GetClosId().GetValue()) },
	}, {
		name:      classes.SettingUnified,
		set:       func(a *api.ContainerAdjustment, key, value string) error { a.AddLinuxUnified(key, value); return nil },
		adjusted:  func(a *api.ContainerAdjustment) map[string]string { return a.GetLinux().GetResources().GetUnified() },
		described: func(c *api.Container) map[string]string { return c.GetLinux().GetResources().GetUnified() },
	}, {
		name: classes.SettingOOMScoreAdj, since: "0.7",
		set: func(a *api.ContainerAdjustment, _, value string) error {
			score, err := strconv.Atoi(value)
			a.SetLinuxOomScoreAdj(&score)
			return err
		},
		adjusted:  func(a *api.ContainerAdjustment) map[string]string { return number(a.GetLinux().GetOomScoreAdj()) },
		described: func(c *api.Container) map[string]string { return number(c.GetLinux().GetOomScoreAdj()) },
	}, {
		name: classes.SettingRlimit,
		set: func(a *api.ContainerAdjustment, key, value string) error {
			var limit api.POSIXRlimit
			err := parseWords(&limit, value)
			a.AddRlimit(key, limit.GetHard(), limit.GetSoft())
			return err
		},
		adjusted:  func(a *api.ContainerAdjustment) map[string]string { return rlimits(a.GetRlimits()) },
		described: func(c *api.Container) map[string]string { return rlimits(c.GetRlimits()) },
	}, {
		name: classes.SettingIOPriority, since: "0.10",
		set: func(a *api.ContainerAdjustment, _, value string) error {
			var priority api.LinuxIOPriority
			err := parseWords(&priority, value)
			a.SetLinuxIOPriority(&priority)
			return err
		},
		adjusted:  func(a *api.ContainerAdjustment) map[string]string { return single(words(a.GetLinux().GetIoPriority())) },
		described: func(c *api.Container) map[string]string { return single(words(c.GetLinux().GetIoPriority())) },
	}, {
		name: classes.SettingScheduler, since: "0.11",
		set: func(a *api.ContainerAdjustment, _, value string) error {
			var scheduler api.LinuxScheduler
			err := parseWords(&scheduler, value)
			a.SetLinuxScheduler(&scheduler)
			return err
		},
		adjusted:  func(a *api.ContainerAdjustment) map[string]string { return single(words(a.GetLinux().GetScheduler())) },
		described: func(c *api.Container) map[string]string { return single(words(c.GetLinux().GetScheduler())) },
	}, {
		name: classes.SettingSysctl, since: "0.11",
		set:       func(a *api.ContainerAdjustment, key, value string) error { a.SetLinuxSysctl(key, value); return nil },
		adjusted:  func(a *api.ContainerAdjustment) map[string]string { return a.GetLinux().GetSysctl() },
		described: func(c *api.Container) map[string]string { return c.GetLinux().GetSysctl() },
	}, {
		name: classes.SettingMemoryPolicy, since: "0.12",
		set: func(a *api.ContainerAdjustment, _, value string) error {
			var policy api.LinuxMemoryPolicy
			err := parseWords(&policy, value)
			a.SetLinuxMemoryPolicy(policy.GetMode(), policy.GetNodes(), policy.GetFlags()...)
			return err
		},
		adjusted: func(a *api.ContainerAdjustment) map[string]string {
			return single(words(a.GetLinux().GetMemoryPolicy()))
		},
		// NRI does not report the policy of a container.
		described: func(*api.Container) map[string]string { return nil },
	}}
}

// Since returns the first version of NRI that can set a setting, or "" if each version can.
func Since(setting classes.Setting) string {
	for _, s := range nriSettings() {
		if s.name == setting.Name {
			return s.since
		}
	}
	return ""
}

func single(value string) map[string]string {
	if value == "" {
		return nil
	}
	return map[string]string{"": value}
}

func number(value *api.OptionalInt) map[string]string {
	if value == nil {
		return nil
	}
	return single(strconv.FormatInt(value.GetValue(), 10))
}

func rlimits(limits []*api.POSIXRlimit) map[string]string {
	if len(limits) == 0 {
		return nil
	}
	byType := map[string]string{}
	for _, limit := range limits {
		byType[limit.GetType()] = words(&api.POSIXRlimit{Hard: limit.GetHard(), Soft: limit.GetSoft()})
	}
	return byType
}

// setAll adds the values of `wanted` to an adjustment. `nri` is the runtime's NRI version. setAll returns an error for a setting that this
// version does not have.
func setAll(adjust *api.ContainerAdjustment, wanted classes.Adjustment, nri string) error {
	byName := map[classes.SettingName]nriSetting{}
	for _, setting := range nriSettings() {
		byName[setting.name] = setting
	}

	for _, setting := range wanted.Settings() {
		row, known := byName[setting.Name]
		switch {
		case !known:
			return fmt.Errorf("%s: NRI cannot set it", setting)
		case row.since != "" && !atLeast(nri, row.since):
			return fmt.Errorf("%s: the runtime has NRI %s, and only NRI %s or later sets it; upgrade the runtime", setting, orUnknown(nri), row.since)
		}
		if err := row.set(adjust, setting.Key, wanted[setting]); err != nil {
			return fmt.Errorf("%s: %q: %w", setting, wanted[setting], err)
		}
	}
	return nil
}

// adjusted returns the values that an adjustment sets. The function `described` returns the values that a container's
// specification has.
func adjusted(a *api.ContainerAdjustment) classes.Adjustment {
	return collect(func(s nriSetting) map[string]string { return s.adjusted(a) })
}

func described(c *api.Container) classes.Adjustment {
	return collect(func(s nriSetting) map[string]string { return s.described(c) })
}

func collect(values func(nriSetting) map[string]string) (all classes.Adjustment) {
	for _, setting := range nriSettings() {
		for key, value := range values(setting) {
			if all == nil {
				all = classes.Adjustment{}
			}
			all[classes.Setting{Name: setting.name, Key: key}] = value
		}
	}
	return all
}

// atLeast reports whether an NRI version, e.g. "v0.11.0", is `least` or later. It returns false for an unknown
// version.
func atLeast(nri, least string) bool {
	has, err := version.ParseGeneric(nri)
	return err == nil && has.AtLeast(version.MustParseGeneric(least+".0"))
}

func orUnknown(nri string) string {
	if nri == "" {
		return "of an unknown version"
	}
	return nri
}
