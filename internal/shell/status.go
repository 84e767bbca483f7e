// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"fmt"
	"strconv"
	"strings"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/columns"
)

// Status is the state of a node for people.
func Status(s *qosv1alpha1.StatusResponse) string {
	var text strings.Builder
	header(&text, s)
	resources := resourcesOf(s)
	if len(resources) == 0 && len(s.GetUnavailableResources()) == 0 {
		text.WriteString("\nNo QoS-class resources are offered.\n")
	}
	resourceTable(&text, resources)
	classTable(&text, resources)
	unavailableTable(&text, s.GetUnavailableResources())
	conditionTable(&text, s, resources)
	lastError(&text, s.GetConfig())
	return text.String()
}

// scoped is a resource with the word for its scope.
type scoped struct {
	*qosv1alpha1.QOSResourceInfo
	scope string
}

func resourcesOf(s *qosv1alpha1.StatusResponse) []scoped {
	var resources []scoped
	for _, r := range s.GetResources().GetContainerQosResources() {
		resources = append(resources, scoped{r, "container"})
	}
	for _, r := range s.GetResources().GetPodQosResources() {
		resources = append(resources, scoped{r, "pod"})
	}
	return resources
}

func header(text *strings.Builder, s *qosv1alpha1.StatusResponse) {
	fmt.Fprintf(text, "Plugin:   %s, started %s\n", columns.Plain(s.GetPlugin().GetVersion()), timeText(s.GetPlugin().GetStartedAt()))
	fmt.Fprintf(text, "Runtime:  %s\n", columns.Plain(runtimeText(s.GetRuntime())))
	fmt.Fprintf(text, "Config:   %s\n", columns.Plain(configText(s.GetConfig())))
}

func runtimeText(r *qosv1alpha1.RuntimeInfo) string {
	if r.GetName() == "" {
		return "never registered"
	}
	name := r.GetName() + " " + r.GetVersion()
	if r.GetNriVersion() != "" {
		name += " (NRI " + r.GetNriVersion() + ")"
	}
	if !r.GetRegistered() {
		return name + ", NOT registered now; last registered " + timeText(r.GetRegisteredAt())
	}
	return name + ", registered since " + timeText(r.GetRegisteredAt())
}

func configText(c *qosv1alpha1.ConfigInfo) string {
	if c.GetGeneration() == 0 {
		return "none in force"
	}
	in := "no files"
	if len(c.GetFiles()) > 0 {
		in = strings.Join(c.GetFiles(), ", ")
	}
	return fmt.Sprintf("generation %d, hash %s, loaded %s: %s", c.GetGeneration(), short(c.GetHash()), timeText(c.GetLoadedAt()), in)
}

func resourceTable(text *strings.Builder, resources []scoped) {
	if len(resources) == 0 {
		return
	}
	rows := table{{"RESOURCE", "SCOPE", "MUTABLE", "DEFAULT CLASS"}}
	for _, r := range resources {
		rows = append(rows, []string{r.GetName(), r.scope, yesNo(r.GetMutable()), classText(r.GetDefaultClass())})
	}
	text.WriteByte('\n')
	rows.appendTo(text)
}

func classTable(text *strings.Builder, resources []scoped) {
	rows := table{{"RESOURCE", "CLASS", "CAPACITY", "IN USE", "EXTENDED RESOURCE", "NOTE"}}
	for _, r := range resources {
		for _, c := range r.GetClasses() {
			rows = append(rows, []string{
				r.GetName(), c.GetName(), capacityText(c), strconv.FormatUint(c.GetInUse(), 10), c.GetExtendedResource(), noteText(c),
			})
		}
	}
	if len(rows) > 1 {
		text.WriteByte('\n')
		rows.appendTo(text)
	}
}

func capacityText(c *qosv1alpha1.QOSResourceClassInfo) string {
	switch {
	case c.GetDraining():
		return "-"
	case c.GetCapacity() == 0:
		return Unlimited
	}
	return strconv.FormatUint(c.GetCapacity(), 10)
}

// noteText has what a user must know of a class, or else what it is for.
func noteText(c *qosv1alpha1.QOSResourceClassInfo) string {
	var notes []string
	if c.GetDraining() {
		notes = append(notes, "draining: no longer configured")
	}
	if c.GetDegraded() != "" {
		notes = append(notes, "degraded: "+c.GetDegraded())
	}
	if len(notes) == 0 {
		return c.GetDescription()
	}
	return strings.Join(notes, "; ")
}

func unavailableTable(text *strings.Builder, resources []*qosv1alpha1.UnavailableResource) {
	if len(resources) == 0 {
		return
	}
	rows := table{{"UNAVAILABLE", "SCOPE", "REASON", "MESSAGE"}}
	for _, r := range resources {
		rows = append(rows, []string{r.GetName(), r.GetScope().Name(), r.GetReason(), r.GetMessage()})
	}
	text.WriteByte('\n')
	rows.appendTo(text)
}

func conditionTable(text *strings.Builder, s *qosv1alpha1.StatusResponse, resources []scoped) {
	rows := table{{"CONDITION", "OF", "HEALTHY", "REASON", "SINCE", "MESSAGE"}}
	add := func(of string, conditions []*qosv1alpha1.Condition) {
		for _, c := range conditions {
			rows = append(rows, []string{
				c.GetType(), of, yesNo(c.GetHealthy()), c.GetReason(), timeText(c.GetLastTransitionTime()), c.GetMessage(),
			})
		}
	}
	add("plugin", s.GetConditions())
	for _, r := range resources {
		add(r.GetName(), r.GetConditions())
	}
	if len(rows) > 1 {
		text.WriteByte('\n')
		rows.appendTo(text)
	}
}

// lastError has one line for each problem of class files that are not in force.
func lastError(text *strings.Builder, c *qosv1alpha1.ConfigInfo) {
	if c.GetLastError() == "" {
		return
	}
	fmt.Fprintf(text, "\nClass files are not in force as they were read at %s:\n", timeText(c.GetLastErrorAt()))
	for line := range strings.Lines(c.GetLastError()) {
		fmt.Fprintf(text, "  %s\n", columns.Plain(strings.TrimSuffix(line, "\n")))
	}
}

// short is the beginning of a hash, which is enough for people to tell two apart.
func short(hash string) string { return hash[:min(12, len(hash))] }
