// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimesetup

import (
	"fmt"
	"strings"
)

// validatorSetting is the setting of a runtime that enables NRI's default validator.
type validatorSetting struct {
	main, dropIns string // the usual paths of the configuration
	table, key    string
}

func (r runtime) validatorSetting() (validatorSetting, bool) {
	switch r.family() {
	case containerd:
		return validatorSetting{containerdFile, containerdDropIns, "default_validator", "enable"}, true
	case crio:
		return validatorSetting{"/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*", "default_validator", "nri_enable_default_validator"}, true
	}
	return validatorSetting{}, false
}

// validator reports whether the runtime refuses pods that require the plugin while the plugin is away. Only NRI's default validator
// does that, and it is off by default. Runtimes do not report this setting, so validator reads their files at the usual paths.
func validator(files Files, r runtime) []Finding {
	s, known := r.validatorSetting()
	if !known {
		return nil
	}

	names, _ := files.Glob(s.dropIns) // ownConfiguration reports directories that cannot be read
	enabled := false
	for _, name := range append([]string{s.main}, names...) {
		if data, err := files.ReadFile(name); err == nil {
			enabled = s.in(string(data), enabled)
		}
	}
	if enabled {
		return []Finding{{OK, "NRI's default validator is on: pods that require the plugin wait for it"}}
	}
	return []Finding{{Warning, fmt.Sprintf("NRI's default validator seems to be off in %s, so the policy required-plugin has no effect, and while the "+
		"plugin is away, pods start without their classes; if you use this policy, enable the validator (docs/policies.md)", r.name)}}
}

// in returns whether a configuration file enables the validator. If the file does not have the setting, it returns
// `before`.
func (s validatorSetting) in(file string, before bool) bool {
	enabled, inTable := before, false
	for line := range strings.Lines(file) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		if strings.HasPrefix(line, "[") {
			inTable = strings.Contains(line, s.table)
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if ok && inTable && strings.TrimSpace(key) == s.key {
			enabled = strings.TrimSpace(value) == "true"
		}
	}
	return enabled
}
