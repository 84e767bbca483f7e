// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimesetup

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Keys of the runtimes' own RDT and block I/O configuration, the same in containerd and CRI-O.
const (
	rdtFileKey     = "rdt_config_file"
	blockIOFileKey = "blockio_config_file"
)

// configFiles are where a runtime's configuration usually is: the main file, then what is merged into it.
func (r runtime) configFiles() (main string, more []string) {
	switch r.family() {
	case containerd:
		return "/etc/containerd/config.toml", []string{"/etc/containerd/conf.d/*.toml"}
	case crio:
		return "/etc/crio/crio.conf", []string{"/etc/crio/crio.conf.d/*", "/usr/lib/crio/crio.conf.d/*", "/usr/share/crio/crio.conf.d/*"}
	}
	return "", nil
}

// ownConfiguration says whether the runtime manages RDT or block I/O by itself. Over CRI it does not tell, so its
// configuration files are looked at; where they are not in the usual place, the answer is unknown.
func ownConfiguration(files Files, r runtime) []Finding {
	main, more := r.configFiles()
	if main == "" {
		return []Finding{{Unknown, "whether " + r.name + " has an RDT configuration of its own, which could remove the groups of the plugin"}}
	}
	found, read, unread := readSettings(files, main, more)
	findings := make([]Finding, 0, 2+len(unread))
	for _, reason := range unread {
		findings = append(findings, Finding{Unknown, fmt.Sprintf("whether %s has an RDT configuration of its own: %s; look there for %s",
			r.name, reason, rdtFileKey)})
	}
	for _, s := range found {
		findings = append(findings, judge(s, r))
	}
	if len(found) == 0 && len(unread) == 0 {
		findings = append(findings, Finding{OK, fmt.Sprintf("%s has no RDT or block I/O configuration of its own in %s",
			r.name, strings.Join(read, ", "))})
	}
	return findings
}

func judge(s setting, r runtime) Finding {
	if s.key == rdtFileKey {
		return Finding{Problem, fmt.Sprintf("%s has an RDT configuration of its own (%s in %s:%d), and at its start removes the groups of "+
			"the plugin; take that line out, and name the file under rdt.configFile of a class file", r.name, s.key, s.file, s.line)}
	}
	return Finding{Warning, fmt.Sprintf("%s has a block I/O configuration of its own (%s in %s:%d); "+
		"a container that asks both for a class gets values of both", r.name, s.key, s.file, s.line)}
}

// readSettings returns the settings of interest, which files were read, and why others were not.
func readSettings(files Files, main string, patterns []string) (found []setting, read, unread []string) {
	names := []string{main}
	for _, pattern := range patterns {
		matches, err := files.Glob(pattern)
		if err != nil {
			unread = append(unread, fmt.Sprintf("%s: %v", pattern, err))
		}
		names = append(names, matches...)
	}
	for _, name := range names {
		data, err := files.ReadFile(name)
		switch {
		case err == nil:
			read = append(read, name)
			found = append(found, scan(name, data)...)
		case !errors.Is(err, fs.ErrNotExist):
			unread = append(unread, err.Error())
		}
	}
	if len(read) == 0 && len(unread) == 0 {
		unread = append(unread, "there is no "+main+", and it may use another file")
	}
	for _, s := range found {
		if s.key == importsKey {
			unread = append(unread, fmt.Sprintf("%s:%d imports %s, which were not read", s.file, s.line, s.value))
		}
	}
	return slices.DeleteFunc(found, func(s setting) bool { return s.key == importsKey }), read, unread
}

// importsKey names more files of containerd.
const importsKey = "imports"

// setting is a line of a TOML file that sets one of the keys of interest to something.
type setting struct {
	file, key, value string
	line             int
}

// scan finds settings in TOML. It reads lines, not the language: of the keys of interest it finds those that are set
// the usual way, "key = value" on one line, whatever the table.
func scan(file string, data []byte) []setting {
	var found []setting
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		key, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		key = strings.Trim(key[strings.LastIndexByte(key, '.')+1:], " \t\"'")
		value = strings.TrimSpace(value)
		if slices.Contains([]string{rdtFileKey, blockIOFileKey, importsKey}, key) && !empty(key, value) {
			found = append(found, setting{file: file, key: key, value: value, line: number})
		}
	}
	return found
}

// empty says whether a value sets nothing: an empty string, or imports of the files that are read anyway.
func empty(key, value string) bool {
	value, _, _ = strings.Cut(value, " #")
	value = strings.NewReplacer(`"`, "", `'`, "", "[", "", "]", "", " ", "").Replace(value)
	return value == "" || strings.HasPrefix(value, "#") || key == importsKey && value == "/etc/containerd/conf.d/*.toml"
}
