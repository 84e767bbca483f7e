// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimesetup

import "strings"

// validator reports whether the runtime refuses pods that require the plugin while the plugin is away. Only NRI's default validator
// does that, and it is off by default. Runtimes do not report this setting, so validator reads their files at the usual paths.
func (i *inspection) validator() {
	var key, main, dropIns string
	switch i.family() {
	case containerd:
		key, main, dropIns = "enable", containerdFile, containerdDropIns
	case crio:
		key, main, dropIns = "nri_enable_default_validator", "/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*"
	default:
		return
	}

	names, _ := i.Files.Glob(dropIns) // ownConfiguration reports directories that cannot be read
	enabled := false
	for _, name := range append([]string{main}, names...) {
		if data, err := i.Files.ReadFile(name); err == nil {
			enabled = enablesValidator(string(data), key, enabled)
		}
	}
	if enabled {
		i.report(OK, "NRI's default validator is on: pods that require the plugin wait for it")
		return
	}
	i.report(Warning, "NRI's default validator seems to be off in %s, so the policy required-plugin has no effect, and while the "+
		"plugin is away, pods start without their classes; if you use this policy, enable the validator (docs/policies.md)", i.name)
}

// enablesValidator returns whether a configuration file enables the validator with the setting `key`. If the file does not have
// the setting, it returns `before`.
func enablesValidator(file, key string, before bool) bool {
	enabled, inTable := before, false
	for line := range strings.Lines(file) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		if strings.HasPrefix(line, "[") {
			inTable = strings.Contains(line, "default_validator")
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if ok && inTable && strings.TrimSpace(name) == key {
			enabled = strings.TrimSpace(value) == "true"
		}
	}
	return enabled
}
