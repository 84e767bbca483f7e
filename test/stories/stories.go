// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stories reads the stories of docs/stories.md, which tests run.
package stories

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Story is a section of the page with a class file, a pod, and commands that show the effect.
type Story struct {
	Title string
	// ClassFile is a whole class file.
	ClassFile string
	Pod       corev1.Pod
	// Shown has the commands that print exactly the output on the page. Effects has commands that print counters of the
	// kernel, so their numbers differ from those on the page.
	Shown, Effects []Command
	requests       map[corev1.ResourceName]string
}

// Command is the command cat or grep with one file, which "kubectl exec" runs in a container.
type Command struct {
	Container, File, Output string
	words                   []string
}

// Read returns the stories of a page.
func Read(page string) (all []Story, err error) {
	story := regexp.MustCompile("(?s)```yaml\n(- name: .*?)```\n\n```yaml\n(.*?)```\n\n```console\n(.*?)```\n(?:.*?```console\n(.*?)```\n)?")
	for section := range strings.SplitSeq(page, "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		parts := story.FindStringSubmatch(text)
		if parts == nil {
			continue
		}
		s := Story{Title: title, ClassFile: "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n" + parts[1]}
		if err := yaml.UnmarshalStrict([]byte(parts[2]), &s.Pod); err != nil {
			return nil, fmt.Errorf("the pod of %q: %w", title, err)
		}
		if s.requests, err = extended(parts[1]); err != nil {
			return nil, fmt.Errorf("the class file of %q: %w", title, err)
		}
		s.Shown, s.Effects = s.commands(parts[3]), s.commands(parts[4])
		all = append(all, s)
	}
	return all, nil
}

// extended returns the requests RESOURCE=CLASS for the classes of some resources, by their extended resources.
func extended(resources string) (map[corev1.ResourceName]string, error) {
	var list []struct {
		Name    string
		Classes []struct{ Name string }
	}
	if err := yaml.Unmarshal([]byte(resources), &list); err != nil {
		return nil, err
	}
	requests := map[corev1.ResourceName]string{}
	for _, resource := range list {
		for _, class := range resource.Classes {
			name, err := classes.ExtendedResource(resource.Name, class.Name)
			if err != nil {
				return nil, err
			}
			requests[corev1.ResourceName(name)] = resource.Name + "=" + class.Name
		}
	}
	return requests, nil
}

// commands returns the commands of a console, each with its output.
func (s *Story) commands(console string) (all []Command) {
	for _, text := range strings.Split("\n"+console, "\n$ ")[1:] {
		line, output, _ := strings.Cut(text, "\n")
		words := regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(strings.TrimPrefix(line, "kubectl exec "+s.Pod.Name+" "), -1)
		c := Command{Container: s.Pod.Spec.Containers[0].Name, Output: strings.TrimSuffix(output, "\n"), words: words}
		if words[0] == "-c" {
			c.Container, c.words = words[1], words[2:]
		}
		c.File = words[len(words)-1]
		all = append(all, c)
	}
	return all
}

// Allocated returns the annotations with which the kubelet passes the extended resources of a container to the runtime.
func (s *Story) Allocated(container corev1.Container) map[string]string {
	annotations := map[string]string{}
	for name := range container.Resources.Limits {
		if request, is := s.requests[name]; is {
			_, class, _ := strings.Cut(string(name), "/")
			annotations[classes.AllocatedKeyPrefix+class] = request
		}
	}
	return annotations
}

// Request returns the request RESOURCE=CLASS for a class of the story.
func (s *Story) Request(class string) string {
	for _, request := range s.requests {
		if strings.HasSuffix(request, "="+class) {
			return request
		}
	}
	return ""
}

// Labels returns the labels of the pod after an admission policy of the page has copied its priority class.
func (s *Story) Labels() map[string]string {
	labels := map[string]string{}
	for key, value := range s.Pod.Labels {
		labels[key] = value
	}
	if s.Pod.Spec.PriorityClassName != "" {
		labels[classes.Domain+"/priority-class"] = s.Pod.Spec.PriorityClassName
	}
	return labels
}

// Prints returns what the command prints if its file has the given content.
func (c Command) Prints(content string) string {
	switch {
	case len(c.words) == 3 && c.words[1] == "cat":
		return strings.TrimSuffix(content, "\n")
	case len(c.words) == 4 && c.words[1] == "grep":
		for line := range strings.Lines(content) {
			if strings.Contains(line, strings.Trim(c.words[2], `"`)) {
				return strings.TrimRight(line, " \n")
			}
		}
		return ""
	case len(c.words) == 5 && c.words[1] == "grep" && c.words[2] == "-om1" && strings.Contains(content, c.words[3]):
		return c.words[3]
	}
	return fmt.Sprintf("the command %q has no output", c.words)
}

// SameButNumbers reports whether two outputs are equal, except for numbers above 0.
func SameButNumbers(one, other string) bool {
	number := regexp.MustCompile(`\b[1-9]\d*\b`)
	return number.ReplaceAllString(one, "N") == number.ReplaceAllString(other, "N")
}
