// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/stage"
)

// classes has classes like those of the example in KEP-3008, "Mitigating noisy neighbors", with small capacities.
const classes = `apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  defaultClass: bronze
  classes:
  - {name: gold, capacity: 2, description: cache that no other class can evict from}
  - {name: bronze}
  rdt:
    partitions:
      exclusive:
        l3Allocation: "60%"
        classes: {gold: {l3Allocation: "100%"}}
      shared:
        l3Allocation: "40%"
        classes: {bronze: {l3Allocation: "100%"}}
- name: k8s.io/blockio
  classes:
  - {name: high-prio, capacity: 4}
  - {name: throttled}
  blockio:
    Classes:
      high-prio: [{Weight: "400"}]
      throttled: [{Devices: [DEVICES], ThrottleReadBps: 20M, ThrottleWriteBps: 20M}]
`

// classFileFor returns the class file for the disks of a host.
func classFileFor(h stage.Host) (string, error) {
	var devices []string
	for _, pattern := range []string{"/dev/vd[a-z]", "/dev/sd[a-z]", "/dev/nvme[0-9]n[0-9]"} {
		found, err := h.Glob(pattern)
		if err != nil {
			return "", err
		}
		if len(found) > 0 {
			devices = append(devices, fmt.Sprintf("%q", pattern))
		}
	}
	return strings.ReplaceAll(classes, "DEVICES", strings.Join(devices, ", ")), nil
}

func run(ctx context.Context, real bool, out io.Writer) (err error) {
	h, err := newHost(real)
	if err != nil {
		return err
	}

	classFile, err := classFileFor(h)
	if err != nil {
		return err
	}

	s, err := stage.Raise(ctx, h, classFile)
	defer func() { err = errors.Join(err, s.Down()) }()
	if err != nil {
		return err
	}

	p := &play{Stage: s, classFile: classFile, ctx: ctx, out: out, ids: map[string]string{}}
	printStory(p, real)
	p.hold()
	return p.over()
}

func printStory(p *play, real bool) {
	p.say("A runtime's side of NRI and the plugin, on %s.\n", map[bool]string{true: "this machine", false: "a simulated machine"}[real])

	p.title("The class file")
	p.say("%s", p.classFile)
	p.title("What the node offers")
	p.status()

	p.title("Pods are created; the last one requests nothing")
	p.mustRun("web", "main-app: rdt=gold,blockio=high-prio", "sidecar: rdt=bronze,blockio=throttled")
	p.mustRun("db", "main-app: rdt=gold")
	p.mustRun("other", "main-app")
	p.title("Assignments, and the source of each")
	p.assignments()

	p.title("Requests that cannot be granted are refused, with the reason")
	p.refuse("late", "main-app: rdt=gold")
	p.refuse("typo", "main-app: rdt=glod")

	p.title("The class of a running container is changed")
	p.change("db", "main-app", "rdt", "bronze")
	p.say("Now the node has room for another pod with the request of pod late:\n")
	p.mustRun("late2", "main-app: rdt=gold")
	p.say("\n")
	p.assignments()

	p.title("The values in the kernel")
	p.kernel()
}

// kernel prints the plugin's resctrl groups, and the io files of the containers.
func (p *play) kernel() {
	schemata := p.Groups.Schemata()
	names := make([]string, 0, len(schemata))
	for class := range schemata {
		names = append(names, class)
	}

	slices.Sort(names)
	for _, class := range names {
		p.say("the class %s of k8s.io/rdt\n", class)
		dir := "/sys/fs/resctrl/qos-" + class
		p.show(dir+"/schemata", "\n")
		p.show(dir+"/tasks", " ")
	}

	for _, name := range []string{"web/main-app", "web/sidecar"} {
		ctr, err := p.Runtime.Container(p.ids[name])
		if err != nil {
			p.keep(err)
			return
		}
		p.say("the cgroup of %s\n", name)
		dir := path.Join("/sys/fs/cgroup", nriruntime.CgroupDir(ctr.Spec.CgroupsPath))
		for _, file := range []string{"io.max", "io.bfq.weight", "io.weight"} {
			p.show(path.Join(dir, file), "\n")
		}
	}
}

// show prints a file of the kernel unless it is missing or empty.
func (p *play) show(file, separator string) {
	data, err := p.Host.ReadFile(file)
	if err != nil || len(strings.TrimSpace(string(data))) == 0 {
		return
	}

	label := file
	if strings.HasPrefix(file, "/sys/fs/cgroup/") {
		label = path.Base(file)
	}

	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}

	if separator == "\n" {
		separator = "\n    "
	}

	p.say("  %s\n    %s\n", label, strings.Join(lines, separator))
}
