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

// These are the keys of the runtime's own RDT and block I/O configuration. They are the same in containerd and CRI-O.
const (
	rdtFileKey     = "rdt_config_file"
	blockIOFileKey = "blockio_config_file"
)

// These are the usual paths of containerd's configuration. containerd merges the drop-ins into the main file.
const (
	containerdFile    = "/etc/containerd/config.toml"
	containerdDropIns = "/etc/containerd/conf.d/*.toml"
)

// ownConfiguration reports whether the runtime itself manages RDT or block I/O. CRI-O reports its settings over CRI. For
// containerd, ownConfiguration reads containerd's configuration files. If these files are not at their usual paths, the
// result is unknown.
func ownConfiguration(files Files, r runtime) []Finding {
	switch {
	case r.own != nil:
		return reported(r)
	case r.family() == containerd:
		return inFiles(files, r)
	}
	return []Finding{{Unknown, fmt.Sprintf("whether %s has an RDT configuration of its own, and so removes the groups of other programs; "+
		"look for %s in its configuration", r.name, rdtFileKey)}}
}

// reported returns findings about the settings that the runtime has reported over CRI.
func reported(r runtime) []Finding {
	var findings []Finding
	for _, key := range []string{rdtFileKey, blockIOFileKey} {
		if file := r.own[key]; file != "" {
			findings = append(findings, ownFinding(r, key, fmt.Sprintf("%s = %q", key, file)))
		}
	}
	if len(findings) == 0 {
		return []Finding{{OK, r.name + " has no RDT or block I/O configuration of its own"}}
	}
	return findings
}

// inFiles returns findings about the settings in containerd's configuration files.
func inFiles(files Files, r runtime) []Finding {
	found, read, unread := readSettings(files, containerdFile, containerdDropIns)
	findings := make([]Finding, 0, 2+len(unread))
	for _, reason := range unread {
		findings = append(findings, Finding{Unknown, fmt.Sprintf(
			"whether %s has an RDT configuration of its own: %s; look for %s in the configuration that was not read",
			r.name, reason, rdtFileKey)})
	}
	for _, s := range found {
		findings = append(findings, ownFinding(r, s.key, fmt.Sprintf("%s in %s:%d", s.key, s.file, s.line)))
	}
	if len(found) == 0 && len(unread) == 0 {
		findings = append(findings, Finding{OK, fmt.Sprintf("%s has no RDT or block I/O configuration of its own in %s",
			r.name, strings.Join(read, ", "))})
	}
	return findings
}

type setting struct {
	file, key, value string
	line             int
}

// ownFinding reports a setting with which the runtime itself manages RDT or block I/O.
func ownFinding(r runtime, key, where string) Finding {
	if key == rdtFileKey {
		return Finding{Problem, fmt.Sprintf("%s has an RDT configuration of its own (%s), and removes the resctrl groups of the plugin and of "+
			"other programs when it starts; remove that setting, and name the file as rdt.configFile in a class file", r.name, where)}
	}
	return Finding{Warning, fmt.Sprintf("%s has a block I/O configuration of its own (%s); "+
		"a container that requests a class of the runtime and a class of the plugin gets the values of both", r.name, where)}
}

// readSettings returns the RDT and block I/O settings in the runtime's configuration files, the files that were read,
// and the reasons why other files were not read.
func readSettings(files Files, main, dropIns string) (found []setting, read, unread []string) {
	names, err := files.Glob(dropIns)
	if err != nil {
		unread = append(unread, fmt.Sprintf("%s: %v", dropIns, err))
	}

	for _, name := range append([]string{main}, names...) {
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
		unread = append(unread, "there is no "+main+"; the runtime may use another file")
	}
	for _, s := range found {
		if s.key == importsKey {
			unread = append(unread, fmt.Sprintf("%s:%d imports %s, which were not read", s.file, s.line, s.value))
		}
	}
	return slices.DeleteFunc(found, func(s setting) bool { return s.key == importsKey }), read, unread
}

const importsKey = "imports"

// scan finds lines of the form "key = value" in any table of a TOML file. This works with the configuration files of
// every runtime version, and gives the line numbers of the settings.
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

// empty reports whether a value has no effect. A value has no effect if it is an empty string, or if it imports only
// files that readSettings reads anyway.
func empty(key, value string) bool {
	value, _, _ = strings.Cut(value, " #")
	value = strings.NewReplacer(`"`, "", `'`, "", "[", "", "]", "", " ", "").Replace(value)
	return value == "" || strings.HasPrefix(value, "#") || key == importsKey && value == containerdDropIns
}
