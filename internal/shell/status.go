// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"fmt"
	"strconv"
	"strings"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// Status formats the state of a node.
func Status(s *qosv1alpha1.StatusResponse) string {
	var text strings.Builder
	fmt.Fprintf(&text, "Plugin:   %s, started %s\n", program.Printable(s.GetPlugin().GetVersion()), timeText(s.GetPlugin().GetStartedAt()))
	fmt.Fprintf(&text, "Runtime:  %s\n", program.Printable(runtimeText(s.GetRuntime())))
	if plugins := s.GetRuntime().GetNriPlugins(); len(plugins) > 0 {
		fmt.Fprintf(&text, "Plugins:  %s\n", program.Printable(strings.Join(plugins, ", ")))
	}
	fmt.Fprintf(&text, "Config:   %s\n", program.Printable(configText(s.GetConfig())))

	resources := resourceTable(s.GetResources())
	if len(resources) == 1 && len(s.GetUnavailableResources()) == 0 {
		text.WriteString("\nNo QoS-class resources are offered.\n")
	}
	resources.appendTo(&text)
	classTable(s.GetResources()).appendTo(&text)
	unavailableTable(s.GetUnavailableResources()).appendTo(&text)
	conditionTable(s).appendTo(&text)
	if problems := s.GetConfig().GetLastError(); problems != "" {
		fmt.Fprintf(&text, "\nThe class files that were read at %s are not in force:\n", timeText(s.GetConfig().GetLastErrorAt()))
		for line := range strings.Lines(problems) {
			fmt.Fprintf(&text, "  %s\n", program.Printable(strings.TrimSuffix(line, "\n")))
		}
	}
	return text.String()
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

func resourceTable(resources *qosv1alpha1.ResourcesInfo) table {
	rows := table{{"RESOURCE", "SCOPE", "MUTABLE", "DEFAULT CLASS"}}
	for scope, r := range resources.All() {
		rows = append(rows, []string{r.GetName(), scope.Name(), yesNo(r.GetMutable()), classText(r.GetDefaultClass())})
	}
	return rows
}

func classTable(resources *qosv1alpha1.ResourcesInfo) table {
	rows := table{{"RESOURCE", "CLASS", "CAPACITY", "IN USE", "EXTENDED RESOURCE", "NOTE"}}
	for _, r := range resources.All() {
		for _, c := range r.GetClasses() {
			rows = append(rows, []string{
				r.GetName(), c.GetName(), capacityText(c), strconv.FormatUint(c.GetInUse(), 10), c.GetExtendedResource(), noteText(c),
			})
		}
	}
	return rows
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

// noteText returns the restrictions of a class. If there are none, it returns the description of the class.
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

func unavailableTable(resources []*qosv1alpha1.UnavailableResource) table {
	rows := table{{"UNAVAILABLE", "SCOPE", "REASON", "MESSAGE"}}
	for _, r := range resources {
		rows = append(rows, []string{r.GetName(), r.GetScope().Name(), r.GetReason(), r.GetMessage()})
	}
	return rows
}

func conditionTable(s *qosv1alpha1.StatusResponse) table {
	rows := table{{"CONDITION", "OF", "HEALTHY", "REASON", "SINCE", "MESSAGE"}}
	add := func(of string, conditions []*qosv1alpha1.Condition) {
		for _, c := range conditions {
			rows = append(rows, []string{
				c.GetType(), of, yesNo(c.GetHealthy()), c.GetReason(), timeText(c.GetLastTransitionTime()), c.GetMessage(),
			})
		}
	}

	add("plugin", s.GetConditions())
	for _, r := range s.GetResources().All() {
		add(r.GetName(), r.GetConditions())
		for _, class := range r.GetClasses() {
			add(r.GetName()+"="+class.GetName(), class.GetConditions())
		}
	}
	return rows
}

func short(hash string) string { return hash[:min(12, len(hash))] }
