// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import "testing"

// setterConfig is a configuration whose classes set values in containers.
type setterConfig struct {
	fakeConfig
	sets []Setting
}

func (c setterConfig) Sets() []Setting { return c.sets }

func TestTwoResourcesThatSetTheSameValueAreRefused(t *testing.T) {
	kind := func(field string, sets ...Setting) Kind {
		return Kind{Field: field, Scopes: []Scope{ContainerScope, PodScope}, Parse: func(*Field, Scope) BackendConfig {
			return setterConfig{fakeConfig{"a"}, sets}
		}}
	}
	// The kinds high and score both set the OOM score; they share nothing else.
	kinds := []Kind{
		kind("high", Unified("memory.high"), Setting{Name: SettingOOMScoreAdj}), kind("low", Unified("memory.low")),
		kind("score", Setting{Name: SettingRlimit, Key: "RLIMIT_NOFILE"}, Setting{Name: SettingOOMScoreAdj}),
	}
	for _, test := range []struct{ name, second, want string }{
		{"different values", "  low: {}\n", ""},
		{"the same value", "  score: {}\n", "a.yaml:7: resources[1].score: sets process.oomScoreAdj, and so does v.example/a at a.yaml:4; let only one resource set it"},
		{"the same kind", "  high: {}\n",
			"a.yaml:7: resources[1].high: sets linux.resources.unified[memory.high], and so does v.example/a at a.yaml:4; let only one resource set it"},
		{"another scope", "  scope: pod\n  score: {}\n", ""},
		{"the same value of pods", "  scope: pod\n  high: {}\n- name: v.example/c\n  scope: pod\n  score: {}\n",
			"a.yaml:11: resources[2].score: sets process.oomScoreAdj, and so does v.example/b at a.yaml:6; let only one resource set it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := head + "- name: v.example/a\n  high: {}\n- name: v.example/b\n" + test.second
			_, err := Parse([]File{{"a.yaml", []byte(text)}}, kinds, nil)
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || err.Error() != test.want):
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestASettingIsParsedFromItsText(t *testing.T) {
	for _, want := range []Setting{{Name: SettingClosID}, Unified("io.max"), {SettingSysctl, "net.core.somaxconn"}} {
		var got Setting
		if err := got.UnmarshalText([]byte(want.String())); err != nil || got != want {
			t.Errorf("%s is parsed as %+v, with the error %v", want, got, err)
		}
	}
}
