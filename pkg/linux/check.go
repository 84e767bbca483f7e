// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

// resolve checks a configuration against this machine.
func (b *Backend) resolve(config classes.BackendConfig) (*snapshot, error) {
	own, ok := config.(*Config)
	if !ok {
		return nil, fmt.Errorf("configuration is a %T, not a %T", config, own)
	}
	if unavailable := b.unavailable(own.classes); unavailable != nil {
		return nil, unavailable
	}

	var errs []error
	for _, name := range own.names {
		for _, p := range own.classes[name] {
			if err := b.opts.checkProperty(p); err != nil {
				errs = append(errs, fmt.Errorf("class %q: %s: %w", name, p.name, err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s := &snapshot{classes: own.classes, offered: map[string]bool{}, unordered: b.opts.disksWithoutPriorities()}
	s.status = b.statusOf(own.classes, s.unordered)
	for _, name := range own.names {
		s.offered[name] = true
	}
	return s, nil
}

const root = "/sys/fs/cgroup"

// unavailable returns the reason why this machine cannot have the classes.
func (b *Backend) unavailable(all map[string]class) error {
	var has []string
	var groups map[string][]string
	for _, name := range sortedKeys(all) {
		for _, p := range all[name] {
			f := fileOf(p.setting)
			if f.file == "" {
				continue
			}
			sets := fmt.Sprintf("class %q sets %s", name, p.name)
			if !b.opts.Tree.Unified() {
				return &classes.Unavailable{Reason: "NoCgroupV2", Message: sets + ", which needs cgroup v2; " +
					"mount cgroup2 at " + root + " (boot with systemd.unified_cgroup_hierarchy=1), or keep to properties of processes"}
			}
			if has == nil {
				data, err := b.opts.FS.ReadFile(path.Join(root, "cgroup.controllers"))
				if err != nil {
					return fmt.Errorf("list the cgroup controllers: %w", err)
				}
				has, groups = strings.Fields(string(data)), b.opts.topGroups()
			}
			switch {
			case !slices.Contains(has, f.controller):
				return &classes.Unavailable{Reason: "NoController", Message: fmt.Sprintf("%s, and this machine has no %s controller; "+
					"boot without cgroup_disable=%s", sets, f.controller, f.controller)}
			case b.lacks(f, groups):
				return &classes.Unavailable{Reason: "NoFile", Message: fmt.Sprintf("%s, and this kernel has no file %s; boot %s, or remove the property",
					sets, f.file, f.needs)}
			}
		}
	}
	return nil
}

// lacks reports whether the kernel does not have a file. It looks at the cgroups below the root that have the file's
// controller, because the root never has such files. If there are no such cgroups, this is unknown, and lacks returns
// false.
func (b *Backend) lacks(f cgroupFile, groups map[string][]string) bool {
	lacking := false
	for dir, controllers := range groups {
		if !slices.Contains(controllers, f.controller) {
			continue
		}
		if found, _ := b.opts.FS.Glob(path.Join(dir, f.file)); len(found) > 0 {
			return false
		}
		lacking = true
	}
	return lacking
}

// topGroups returns the controllers of the cgroups below the root, by directory.
func (o Options) topGroups() map[string][]string {
	groups := map[string][]string{}
	// The pattern "*/cgroup.controllers" would also list the children of each cgroup, which can be thousands.
	names, _ := o.FS.Glob(path.Join(root, "*"))
	for _, dir := range names {
		if has, err := o.read(path.Join(dir, "cgroup.controllers")); err == nil {
			groups[dir] = strings.Fields(has)
		}
	}
	return groups
}

// checkProperty reports a value that this machine refuses at the start of each container.
func (o Options) checkProperty(p property) error {
	text, _ := p.value.(fixed)
	if p.setting == (classes.Setting{Name: classes.SettingRlimit, Key: "RLIMIT_NOFILE"}) {
		return o.checkOpenFiles(wordOf(string(text), "hard"))
	}
	if nodes := wordOf(string(text), "nodes"); p.setting.Name == classes.SettingMemoryPolicy && nodes != "" {
		return o.checkNodes(nodes)
	}
	return nil
}

// checkOpenFiles reports a hard limit of open files that the kernel refuses. `hard` is empty if the limit is 0, as in the
// result of `words`.
func (o Options) checkOpenFiles(hard string) error {
	const file = "/proc/sys/fs/nr_open"
	text, err := o.read(file)
	if err != nil {
		return err
	}
	most, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if limit, _ := strconv.ParseUint(hard, 10, 64); limit > most {
		return fmt.Errorf("the hard limit %s is above fs.nr_open of this machine, which is %d; lower it, or raise the sysctl", limitText(limit), most)
	}
	return nil
}

// checkNodes reports NUMA nodes without memory, because the kernel refuses every container with such a node.
func (o Options) checkNodes(nodes string) error {
	const file = "/sys/devices/system/node/has_memory"
	text, err := o.read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("this kernel has no NUMA policies; boot a kernel with CONFIG_NUMA, or remove the property")
	}
	if err != nil {
		return fmt.Errorf("find the NUMA nodes: %w", err)
	}
	has, err := parseNodes(text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}

	wanted, err := parseNodes(nodes)
	for _, node := range wanted {
		if !slices.Contains(has, node) {
			return fmt.Errorf("this machine has no memory on NUMA node %d; its nodes with memory are %s", node, text)
		}
	}
	return err
}

func limitText(limit uint64) string {
	if limit == math.MaxUint64 {
		return unlimited
	}
	return strconv.FormatUint(limit, 10)
}

// list joins names, at most 20 of them.
func list(names []string) string { return printable.List(names, 20) }
