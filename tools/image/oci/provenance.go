// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package oci

// provenance describes the build of an image: the commit, the version of Go, and the build settings that the programs contain. It
// has no times of the build, so that the same input results in the same digest: https://slsa.dev/spec/v1.0/provenance
func provenance(s Spec, programs []program, builder string) map[string]any {
	source := "git+" + s.Source + "@refs/tags/" + s.Version
	settings := map[string]string{}
	for _, p := range programs {
		for _, setting := range p.Settings {
			settings[setting.Key] = setting.Value
		}
	}

	return map[string]any{
		"buildDefinition": map[string]any{
			"buildType":          s.Source + "/blob/" + s.Version + "/docs/releases.md",
			"externalParameters": map[string]any{"source": source, "version": s.Version, "platform": s.Platform.String()},
			"internalParameters": map[string]any{"go": programs[0].GoVersion, "settings": settings},
			"resolvedDependencies": []map[string]any{
				{"uri": source, "digest": map[string]string{"gitCommit": s.Revision}},
			},
		},
		"runDetails": map[string]any{"builder": map[string]string{"id": builder}},
	}
}
