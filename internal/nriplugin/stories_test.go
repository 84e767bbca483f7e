// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// TestTheStoriesOfThePageRun runs each story of docs/stories.md that has a class file, a pod and a command.
func TestTheStoriesOfThePageRun(t *testing.T) {
	page, err := os.ReadFile("../../docs/stories.md")
	if err != nil {
		t.Fatal(err)
	}
	story := regexp.MustCompile("(?s)```yaml\n(- name: .*?)```\n\n```yaml\n(.*?)```\n\n```console\n(.*?)```\n")
	found := 0
	for section := range strings.SplitSeq(string(page), "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		if parts := story.FindStringSubmatch(text); parts != nil {
			found++
			t.Run(title, func(t *testing.T) { runStory(t, parts[1], parts[2], parts[3]) })
		}
	}
	if want := strings.Count(string(page), "$ kubectl exec"); found != want || want < 6 {
		t.Errorf("the page has %d commands, and %d complete stories", want, found)
	}
}

func runStory(t *testing.T, resources, manifest, console string) {
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(manifest), &pod); err != nil {
		t.Fatal(err)
	}
	file := "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n" + resources
	r := newMachineRigOn(t, newMachine(simcgroup.New()), file, nriruntime.Options{})
	main := pod.Spec.Containers[0]
	config := nriruntime.ContainerConfig{Name: main.Name, OOMScoreAdj: 900, Annotations: map[string]string{}}
	for name := range main.Resources.Limits {
		if extended := regexp.MustCompile(`^(.+/[^.]+)\.(.+)$`).FindStringSubmatch(string(name)); extended != nil {
			config.Annotations[classes.AllocatedKeyPrefix+extended[2]] = extended[1] + "=" + extended[2]
		}
	}
	config.Resources = &api.LinuxResources{Unified: map[string]string{"memory.oom.group": "1"}}
	if limit := main.Resources.Limits.Memory().Value(); limit > 0 {
		config.Resources.Memory = &api.LinuxMemory{Limit: api.Int64(limit)}
	}
	labels := maps.Clone(pod.Labels)
	if pod.Spec.PriorityClassName != "" { // the admission policy of this story copies it
		labels = map[string]string{classes.Domain + "/priority-class": pod.Spec.PriorityClassName}
	}
	sandbox, err := r.RunPod(t.Context(), nriruntime.PodConfig{Name: pod.Name, Labels: labels, Annotations: pod.Annotations})
	if err != nil {
		t.Fatal(err)
	}
	id, err := r.CreateContainer(t.Context(), sandbox, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}

	command, output, _ := strings.Cut(console, "\n")
	if got := r.execute(t, id, strings.TrimPrefix(command, "$ kubectl exec "+pod.Name+" -- ")); got != output {
		t.Errorf("%s: got %q, want %q", command, got, output)
	}
}

// execute returns the output of the command cat or grep with one file of the container.
func (r *machineRig) execute(t *testing.T, id, command string) string {
	t.Helper()
	words := regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(command, -1)
	file := words[len(words)-1]
	if name, isCgroup := strings.CutPrefix(file, "/sys/fs/cgroup/"); isCgroup {
		file = r.cgroupFile(t, id, name)
	}
	file = strings.Replace(file, "/proc/1/", fmt.Sprintf("/proc/%d/", r.pidOf(t, id)), 1)
	data, err := r.host.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	switch words[0] {
	case "cat":
		return string(data)
	case "grep":
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, strings.Trim(words[1], `"`)) {
				return strings.TrimRight(line, " \n") + "\n"
			}
		}
	}
	t.Fatalf("the command %q has no output", command)
	return ""
}
