// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// ConditionMonitored is the type of the condition that reports why containers are not monitored.
const ConditionMonitored = "ContainersMonitored"

// These are the reasons why a container is not monitored.
var (
	errNoRMID        = errors.New("all RMIDs for containers are in use")
	errNoClassRMID   = errors.New("all RMIDs of the container's class are in use or not free yet")
	errNoCounter     = errors.New("the CPU has no free counter of memory bandwidth (info/L3_MON/available_mbm_cntrs)")
	errLimbo         = errors.New("the RMIDs of removed groups are not free yet")
	errForeign       = errors.New("another program has put the container into a resctrl group")
	errCannotMonitor = errors.New("the CPU or the kernel cannot monitor caches (info/L3_MON)")
)

// reason is an error and its name, which is the value of a label in metrics.
type reason struct {
	err  error
	name string
}

// reasons returns all reasons. The last one stands for all other errors.
func reasons() []reason {
	return []reason{
		{errNoRMID, "NoFreeRMID"}, {errNoClassRMID, "NoFreeRMIDOfClass"}, {errNoCounter, "NoFreeCounter"}, {errLimbo, "RMIDsNotFreeYet"},
		{errForeign, "ForeignGroup"}, {errCannotMonitor, "CannotMonitor"}, {nil, "Error"},
	}
}

// whyMissing returns the reason to which an error belongs.
func whyMissing(err error) reason {
	all := reasons()
	return all[slices.IndexFunc(all, func(r reason) bool { return r.err == nil || errors.Is(err, r.err) })]
}

// countsOf returns how many containers are monitored and how many are not, by class. It includes the selected classes without
// containers.
func countsOf(states map[string]state, selected []string) map[string]classes.Monitored {
	found := map[string]classes.Monitored{}
	of := func(class string) classes.Monitored {
		counted, has := found[class]
		if !has {
			counted.Missing = map[string]int{}
			for _, r := range reasons() {
				counted.Missing[r.name] = 0
			}
		}
		return counted
	}

	for _, class := range selected {
		found[class] = of(class)
	}
	for _, s := range states {
		counted := of(groups.ClassOf(s.control))
		if s.missing == nil {
			counted.Containers++
		} else {
			counted.Missing[whyMissing(s.missing).name]++
		}
		found[groups.ClassOf(s.control)] = counted
	}
	return found
}

// status reports how many containers are monitored, and why selected containers are not monitored.
func (m *monitors) status(machine *Machine) (map[string]classes.Monitored, []classes.Condition) {
	states, info := m.all(), machine.Info
	counts := countsOf(states, machine.selected())
	if info.RMIDs == 0 {
		return counts, []classes.Condition{{Type: ConditionMonitored, Reason: "CannotMonitor", Message: errCannotMonitor.Error()}}
	}

	uncounted := 0
	var missing []error
	for _, s := range states {
		switch {
		case !s.hasGroup():
			missing = append(missing, s.missing)
		case s.missing != nil:
			uncounted++
		}
	}

	condition := classes.Condition{Type: ConditionMonitored, Healthy: true, Reason: "Monitored"}
	condition.Message = fmt.Sprintf("containers monitored: %d%s", len(states)-uncounted-len(missing), byClass(counts))
	if uncounted > 0 {
		condition.Healthy, condition.Reason = false, "NotAllMonitored"
		condition.Message += fmt.Sprintf("; without memory bandwidth: %d (%v); monitor fewer classes", uncounted, errNoCounter)
	}
	if len(missing) > 0 {
		condition.Healthy, condition.Reason = false, "NotAllMonitored"
		perClass := ""
		if slices.ContainsFunc(missing, func(why error) bool { return errors.Is(why, errNoClassRMID) }) {
			perClass = fmt.Sprintf(" (on Arm, each of the %d CLOSIDs has %d, called PMGs, and its class needs one)", info.CLOSIDs, info.RMIDsOfClass())
		}
		condition.Message += fmt.Sprintf("; not monitored: %d (%s); of the %d RMIDs of this machine%s%s, %d are reserved for classes, and other programs use %d; "+
			"the rest is shared evenly between classes, and between the pods of a class",
			len(missing), missingReasons(missing), info.RMIDs, machine.Selection.fewest(info), perClass, m.reserved.Load(), m.foreign.Load())
	}
	return counts, []classes.Condition{condition}
}

// fewest names the feature that limits the number of RMIDs, unless this is the monitoring of caches. Each feature that
// the kernel has enabled can be the limit, even if nobody reads its counters (Linux 7.3).
func (s Selection) fewest(info resctrl.Info) string {
	switch at := fmt.Sprintf("info/%s/num_rmids", info.FewestRMIDs); {
	case info.FewestRMIDs == resctrl.LLCOccupancy.Feature():
		return ""
	case info.FewestRMIDs == resctrl.CoreEnergy.Feature() && !s.uses(info.FewestRMIDs):
		return fmt.Sprintf(" (%s; class files do not monitor energy, so for more RMIDs boot the kernel with rdt=!energy,!perf)", at)
	default:
		return fmt.Sprintf(" (%s)", at)
	}
}

// byClass returns how many containers of each class are monitored, as text in parentheses. It leaves out classes without
// containers.
func byClass(counts map[string]classes.Monitored) string {
	var texts []string
	for _, class := range slices.Sorted(maps.Keys(counts)) {
		all := counts[class].Containers
		for _, missing := range counts[class].Missing {
			all += missing
		}
		if all > 0 {
			texts = append(texts, fmt.Sprintf("%s: %d of %d", cmp.Or(class, groups.RootClass), counts[class].Containers, all))
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return " (" + strings.Join(texts, ", ") + ")"
}

// missingReasons returns how many containers are not monitored for each reason.
func missingReasons(missing []error) string {
	counts := map[string]int{}
	for _, text := range missing {
		if r := whyMissing(text); r.err != nil {
			text = r.err // without details that differ between containers
		} else if errors.Is(text, resctrl.ErrEnded) {
			text = resctrl.ErrEnded
		}
		counts[strings.ReplaceAll(text.Error(), "\n", "; ")]++
	}

	var texts []string
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		texts = append(texts, fmt.Sprintf("%s: %d", text, counts[text]))
	}
	return strings.Join(texts, "; ")
}
