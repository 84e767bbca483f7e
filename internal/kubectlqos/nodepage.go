// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// nodePage describes a node in the format that KEP-3008, section "Kubectl", proposes for "kubectl describe node". It
// adds the use and the capacity of each class.
func nodePage(node *nodeqosv1alpha1.NodeQOSResources, wide bool, now time.Time) string {
	var page strings.Builder
	page.WriteString(align([][]string{
		{"Name:", node.Name},
		{"Ready:", readyText(node, now)},
		{"Plugin:", orNothing(node.Status.Plugin.Version)},
		{"Runtime:", orNothing(runtimeText(node.Status.Runtime))},
		{"Class files:", configText(node.Status.Config)},
		{"Annotations:", followedText(node)},
	}, ""))

	status := &node.Status.QOSResources
	offered := len(status.PodQOSResources) + len(status.ContainerQOSResources) + len(status.VolumeQOSResources)
	if offered+len(node.Status.UnavailableResources) == 0 {
		page.WriteString("\nNo QoS-class resources are offered.\n")
	}
	section := func(title string, rows [][]string, header ...string) {
		if len(rows) > 0 {
			page.WriteString("\n" + title + "\n" + align(append([][]string{header, underline(header)}, rows...), "  "))
		}
	}
	ofClasses := func(describe func(*nodeqosv1alpha1.QOSResourceInfo, *nodeqosv1alpha1.QOSResourceClassInfo) [][]string) (rows [][]string) {
		for _, r := range status.All() {
			for i := range r.Classes {
				rows = append(rows, describe(r, &r.Classes[i])...)
			}
		}
		return rows
	}
	section("Pod QoS resources:", resourceRows(status.PodQOSResources), "Name", "Mutable", "Classes (in use/capacity)")
	section("Container QoS resources:", resourceRows(status.ContainerQOSResources), "Name", "Mutable", "Classes (in use/capacity)")
	section("Volume QoS resources:", resourceRows(status.VolumeQOSResources), "Name", "Mutable", "Classes (in use/capacity)")
	section("Unavailable QoS resources:", unavailableRows(node), "Name", "Scope", "Reason", "Message")
	section("Notes:", ofClasses(noteRows), "Resource", "Class", "Note")
	section("Conditions that are not True:", conditionRows(node), "Type", "Of", "Status", "Reason", "Since", "Message")
	if problems := node.Status.Config.Error; problems != "" {
		page.WriteString("\nClass files on disk are not in force:\n")
		for line := range strings.Lines(problems) {
			page.WriteString("  " + program.Printable(strings.TrimSuffix(line, "\n")) + "\n")
		}
	}
	if wide {
		section("Classes:", ofClasses(classRow), "Resource", "Class", "Extended resource", "Description")
		section("Held by:", ofClasses(holderRows), "Resource", "Class", "Namespace", "Pod", "Container")
		section("Set by other programs:", foreignRows(node), "Resource", "Setting", "Namespace", "Pod", "Container")
	}
	return page.String()
}

func underline(header []string) []string {
	var lines []string
	for _, name := range header {
		lines = append(lines, strings.Repeat("-", len(name)))
	}
	return lines
}

func followedText(node *nodeqosv1alpha1.NodeQOSResources) string {
	if node.Status.FollowsAnnotations {
		return "changes apply to running and new pods"
	}
	return "changes apply to new pods only"
}

func configText(c nodeqosv1alpha1.ConfigStatus) string {
	if c.Hash == "" {
		return "none in force"
	}
	return "hash " + short(c.Hash) + ", in force since " + timeText(c.LoadedAt)
}

// resourceRows returns a row for each resource. The last cell of a row has all classes of the resource, padded so that
// the classes of all rows are aligned.
func resourceRows(resources []nodeqosv1alpha1.QOSResourceInfo) [][]string {
	var rows, classes [][]string
	for i := range resources {
		r := &resources[i]
		rows = append(rows, []string{r.Name, yesNo(r.Mutable)})
		classes = append(classes, classTexts(r))
	}
	lines := strings.Split(align(classes, ""), "\n")
	for i := range rows {
		rows[i] = append(rows[i], lines[i])
	}
	return rows
}

func unavailableRows(node *nodeqosv1alpha1.NodeQOSResources) (rows [][]string) {
	for _, u := range node.Status.UnavailableResources {
		rows = append(rows, []string{u.Name, orNothing(string(u.Scope)), u.Reason, u.Message})
	}
	return rows
}

func noteRows(r *nodeqosv1alpha1.QOSResourceInfo, class *nodeqosv1alpha1.QOSResourceClassInfo) (rows [][]string) {
	if class.Name == r.DefaultClass {
		rows = append(rows, []string{r.Name, class.Name + defaultMark, "the default, for containers and pods without a request"})
	}
	if class.Degraded != "" {
		rows = append(rows, []string{r.Name, class.Name, "degraded: " + class.Degraded})
	}
	if class.Draining {
		rows = append(rows, []string{r.Name, class.Name, "draining: no longer configured, and removed when its last holder ends"})
	}
	for _, c := range class.Conditions {
		if c.Status != metav1.ConditionFalse { // the others are among the conditions of the node
			rows = append(rows, []string{r.Name, class.Name, strings.ToLower(c.Type) + ": " + c.Message})
		}
	}
	return rows
}

func conditionRows(node *nodeqosv1alpha1.NodeQOSResources) (rows [][]string) {
	add := func(of string, conditions []metav1.Condition) {
		for _, c := range conditions {
			if c.Status == metav1.ConditionFalse || c.Status != metav1.ConditionTrue && c.Type != qos.ConditionHeld {
				rows = append(rows, []string{c.Type, of, string(c.Status), c.Reason, timeText(&c.LastTransitionTime), c.Message})
			}
		}
	}
	add("node", node.Status.Conditions)
	for _, r := range node.Status.QOSResources.All() {
		add(r.Name, r.Conditions)
		for i := range r.Classes {
			add(r.Name+"="+r.Classes[i].Name, r.Classes[i].Conditions)
		}
	}
	return rows
}

func classRow(r *nodeqosv1alpha1.QOSResourceInfo, class *nodeqosv1alpha1.QOSResourceClassInfo) [][]string {
	return [][]string{{r.Name, class.Name, class.ExtendedResource, class.Description}}
}

func holderRows(r *nodeqosv1alpha1.QOSResourceInfo, class *nodeqosv1alpha1.QOSResourceClassInfo) (rows [][]string) {
	for _, h := range class.Holders {
		rows = append(rows, []string{r.Name, class.Name, h.Namespace, h.Pod, containerText(h.Container, h.Volume)})
	}
	if class.HoldersOmitted > 0 {
		rows = append(rows, []string{r.Name, class.Name, fmt.Sprintf("and %d more", class.HoldersOmitted)})
	}
	return rows
}

func foreignRows(node *nodeqosv1alpha1.NodeQOSResources) (rows [][]string) {
	for _, r := range node.Status.QOSResources.All() {
		for _, f := range r.Foreign {
			rows = append(rows, []string{r.Name, f.Setting, f.Namespace, f.Pod, containerText(f.Container, "")})
		}
		if r.ForeignOmitted > 0 {
			rows = append(rows, []string{r.Name, fmt.Sprintf("and %d more", r.ForeignOmitted)})
		}
	}
	return rows
}

// containerText describes a container, a container's volume, or the whole pod.
func containerText(name, volume string) string {
	return strings.TrimSpace(cmp.Or(name, wholePod) + " " + volume)
}
