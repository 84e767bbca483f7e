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
func (i *inspection) ownConfiguration() {
	switch {
	case i.own != nil:
		i.ownReported()
	case i.family() == containerd:
		i.ownInFiles()
	default:
		i.report(Unknown, "whether %s has an RDT configuration of its own, and so removes the groups of other programs; look for %s in its configuration",
			i.name, rdtFileKey)
	}
}

// ownReported evaluates the settings that the runtime has reported over CRI.
func (i *inspection) ownReported() {
	before := len(i.findings)
	for _, key := range []string{rdtFileKey, blockIOFileKey} {
		if file := i.own[key]; file != "" {
			i.reportOwn(key, fmt.Sprintf("%s = %q", key, file))
		}
	}
	if len(i.findings) == before {
		i.report(OK, "%s has no RDT or block I/O configuration of its own", i.name)
	}
}

// ownInFiles evaluates the settings in containerd's configuration files.
func (i *inspection) ownInFiles() {
	found, read, unread := readSettings(i.Files)
	for _, reason := range unread {
		i.report(Unknown, "whether %s has an RDT configuration of its own: %s; look for %s in the configuration that was not read", i.name, reason, rdtFileKey)
	}
	for _, s := range found {
		i.reportOwn(s.key, fmt.Sprintf("%s in %s:%d", s.key, s.file, s.line))
	}
	if len(found) == 0 && len(unread) == 0 {
		i.report(OK, "%s has no RDT or block I/O configuration of its own in %s", i.name, strings.Join(read, ", "))
	}
}

// reportOwn reports a setting with which the runtime itself manages RDT or block I/O.
func (i *inspection) reportOwn(key, where string) {
	if key == rdtFileKey {
		i.report(Problem, "%s has an RDT configuration of its own (%s), and removes the resctrl groups of the plugin and of "+
			"other programs when it starts; remove that setting, and name the file as rdt.configFile in a class file", i.name, where)
		return
	}
	i.report(Warning, "%s has a block I/O configuration of its own (%s); "+
		"a container that requests a class of the runtime and a class of the plugin gets the values of both", i.name, where)
}

type setting struct {
	file, key, value string
	line             int
}

// readSettings returns the RDT and block I/O settings in containerd's configuration files, the files that were read,
// and the reasons why other files were not read.
func readSettings(files Files) (found []setting, read, unread []string) {
	names, err := files.Glob(containerdDropIns)
	if err != nil {
		unread = append(unread, fmt.Sprintf("%s: %v", containerdDropIns, err))
	}

	for _, name := range append([]string{containerdFile}, names...) {
		data, err := files.ReadFile(name)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				unread = append(unread, err.Error())
			}
			continue
		}
		read = append(read, name)
		for _, s := range scan(name, data) {
			if s.key == importsKey {
				unread = append(unread, fmt.Sprintf("%s:%d imports %s, which were not read", s.file, s.line, s.value))
			} else {
				found = append(found, s)
			}
		}
	}
	if len(read) == 0 && len(unread) == 0 {
		unread = append(unread, "there is no "+containerdFile+"; the runtime may use another file")
	}
	return found, read, unread
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
