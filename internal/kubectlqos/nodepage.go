// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/columns"
)

// writeNodePage describes a node in the form that KEP-3008 has for "kubectl describe node" ("Kubectl"), with what is in use.
func writeNodePage(w io.Writer, node *nodeqosv1alpha1.NodeQOSResources, wide bool) {
	fmt.Fprint(w, (&columns.Widths{}).Format(table{
		{"Name:", node.Name},
		{"Ready:", readyText(node)},
		{"Plugin:", orNothing(node.Status.Plugin.Version)},
		{"Runtime:", orNothing(runtimeText(node.Status.Runtime))},
		{"Class files:", configText(node.Status.Config)},
	}, "", gap))
	status := node.Status.QOSResources
	if len(status.PodQOSResources)+len(status.ContainerQOSResources)+len(node.Status.UnavailableResources) == 0 {
		fmt.Fprintln(w, "\nNo QoS resources are offered.")
	}
	writeResources(w, "Pod QoS resources:", status.PodQOSResources)
	writeResources(w, "Container QoS resources:", status.ContainerQOSResources)
	writeSection(w, "Unavailable QoS resources:", []string{"Name", "Scope", "Reason", "Message"}, unavailableRows(node))
	writeSection(w, "Notes:", []string{"Resource", "Class", "Note"}, noteRows(node))
	writeSection(w, "Conditions that are not True:", []string{"Type", "Of", "Status", "Reason", "Since", "Message"}, conditionRows(node))
	writeConfigError(w, node.Status.Config.Error)
	if wide {
		writeSection(w, "Classes:", []string{"Resource", "Class", "Extended resource", "Description"}, classRows(node))
		writeSection(w, "Held by:", []string{"Resource", "Class", "Namespace", "Pod", "Container"}, holderRows(node))
	}
}

func configText(c nodeqosv1alpha1.ConfigStatus) string {
	if c.Hash == "" {
		return "none in force"
	}
	return "hash " + short(c.Hash) + ", in force since " + timeText(c.LoadedAt)
}

// writeSection writes a titled table with its header underlined, as "kubectl describe" does; nothing when there are no rows.
func writeSection(w io.Writer, title string, header []string, rows table) {
	if len(rows) == 0 {
		return
	}
	line := make([]string, 0, len(header))
	for _, name := range header {
		line = append(line, strings.Repeat("-", len(name)))
	}
	fmt.Fprintf(w, "\n%s\n%s", title, (&columns.Widths{}).Format(append(table{header, line}, rows...), "  ", gap))
}

// writeResources has each class in a column of its own, which the header does not have to fit.
func writeResources(w io.Writer, title string, resources []nodeqosv1alpha1.QOSResourceInfo) {
	var rows, names table
	for i := range resources {
		r := &resources[i]
		names = append(names, classTexts(r))
		rows = append(rows, []string{r.Name, yesNo(r.Mutable)})
	}
	lines := strings.Split(names.String(), "\n")
	for i := range rows {
		rows[i] = append(rows[i], lines[i])
	}
	writeSection(w, title, []string{"Name", "Mutable", "Classes (in use/capacity)"}, rows)
}

func unavailableRows(node *nodeqosv1alpha1.NodeQOSResources) table {
	var rows table
	for _, u := range node.Status.UnavailableResources {
		rows = append(rows, []string{u.Name, orNothing(string(u.Scope)), u.Reason, u.Message})
	}
	return rows
}

// noteRows has what a user must know of marks in the table of classes.
func noteRows(node *nodeqosv1alpha1.NodeQOSResources) table {
	var rows table
	for _, r := range scopedResources(node) {
		for _, class := range r.Classes {
			if class.Name == r.DefaultClass {
				rows = append(rows, []string{r.Name, class.Name + defaultMark, "the default: given to what asks for nothing"})
			}
			if class.Degraded != "" {
				rows = append(rows, []string{r.Name, class.Name, "degraded: " + class.Degraded})
			}
			if class.Draining {
				rows = append(rows, []string{r.Name, class.Name, "draining: no longer configured, and gone when nobody has it"})
			}
		}
	}
	return rows
}

func conditionRows(node *nodeqosv1alpha1.NodeQOSResources) table {
	var rows table
	add := func(of string, conditions []metav1.Condition) {
		for i := range conditions {
			if c := &conditions[i]; c.Status != metav1.ConditionTrue {
				rows = append(rows, []string{c.Type, of, string(c.Status), c.Reason, timeText(&c.LastTransitionTime), c.Message})
			}
		}
	}
	add("node", node.Status.Conditions)
	for _, r := range scopedResources(node) {
		add(r.Name, r.Conditions)
	}
	return rows
}

// writeConfigError has one line for each problem of class files that are not in force.
func writeConfigError(w io.Writer, problems string) {
	if problems == "" {
		return
	}
	fmt.Fprintln(w, "\nClass files on disk are not in force:")
	for line := range strings.Lines(problems) {
		fmt.Fprintf(w, "  %s\n", columns.Plain(strings.TrimSuffix(line, "\n")))
	}
}

func classRows(node *nodeqosv1alpha1.NodeQOSResources) table {
	var rows table
	for _, r := range scopedResources(node) {
		for _, class := range r.Classes {
			rows = append(rows, []string{r.Name, class.Name, class.ExtendedResource, class.Description})
		}
	}
	return rows
}

func holderRows(node *nodeqosv1alpha1.NodeQOSResources) table {
	var rows table
	for _, r := range scopedResources(node) {
		for _, class := range r.Classes {
			for _, h := range class.Holders {
				container := h.Container
				if r.scope == nodeqosv1alpha1.ScopePod {
					container = wholePod
				}
				rows = append(rows, []string{r.Name, class.Name, h.Namespace, h.Pod, container})
			}
			if class.HoldersOmitted > 0 {
				rows = append(rows, []string{r.Name, class.Name, fmt.Sprintf("and %d more", class.HoldersOmitted)})
			}
		}
	}
	return rows
}
