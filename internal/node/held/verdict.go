// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package held

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/tables"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Verdict is the result of the Judge for a class.
type Verdict struct {
	// Reason is one of the reasons of qos.ConditionHeld.
	Reason  string
	Message string
	// Limits has the highest use of each measured limit among the holders of the class.
	Limits []Limit
	// `about` identifies the limits and holders in the message. `figure` is the highest ratio in it.
	about  string
	figure float64
}

// Limit is the use of a limit over the window. Ratio is the use divided by the limit.
type Limit struct {
	Name, Part string
	Ratio      float64
}

// Condition returns the verdict as the condition of the class.
func (v Verdict) Condition() classes.Condition {
	return classes.Condition{Type: qos.ConditionHeld, Healthy: v.Reason != qos.ReasonLimitNotHeld, Reason: v.Reason, Message: v.Message}
}

// orSame keeps the message of the previous verdict if the reason and `about` are the same, and if `figure` has changed
// by at most a quarter. This saves writes of the node's object, because each new message needs one.
func (v Verdict) orSame(previous Verdict) Verdict {
	if v.Reason == previous.Reason && v.about == previous.about && v.figure <= previous.figure*1.25 && previous.figure <= v.figure*1.25 {
		v.Message, v.figure = previous.Message, previous.figure
	}
	return v
}

// mostNamed is the maximum number of findings in a message.
const mostNamed = 3

// verdict decides about a class. If several reasons apply, the first one in the switch counts.
func (o *opinion) verdict() (v Verdict) {
	v.Limits = o.limits()
	exceeded := o.where(func(f finding) bool { return f.track.exceeded })
	reached := o.where(func(f finding) bool { return f.reached })
	missing := o.where(func(f finding) bool { return !f.track.measured() })

	unmeasured := whyMissing(missing)
	switch {
	case len(exceeded) > 0:
		v.Reason, v.about = qos.ReasonLimitNotHeld, about(exceeded, true)
		v.figure = exceeded[0].track.ratio()
		v.Message = "Over a minute or more, " + named(exceeded, finding.exceeds) + "; see docs/held.md for possible reasons"
	case len(reached) > 0:
		v.Reason, v.about = qos.ReasonReached, about(reached, false)
		v.Message = "Reached and held: " + named(onePerLimit(reached), finding.uses)
	case o.reached:
		v.Reason, v.Message = qos.ReasonReached, "A limit was reached, by a container or pod that no longer has the class"
	case !o.since.IsZero():
		v.Reason = qos.ReasonNeverReached
		v.Message = "No limit was reached since " + o.since.UTC().Format(time.RFC3339)
	case len(o.findings) == 0:
		v.Reason, v.Message = qos.ReasonNotMeasured, "No container or pod with the class was measured"
	case len(missing) < len(o.findings):
		v.Reason, v.Message = qos.ReasonNotMeasured, "Not measured over a whole window yet"
	default:
		v.Reason, v.Message = qos.ReasonNotMeasured, "Not measured: "+unmeasured
		v.about = v.Message
	}
	if unmeasured != "" && v.Reason != qos.ReasonNotMeasured {
		v.Message += "; not measured: " + unmeasured
		v.about += unmeasured
	}
	v.Message += "."
	return v
}

// limits returns the highest use of each limit, sorted by name.
func (o *opinion) limits() (all []Limit) {
	highest := map[[2]string]float64{}
	for _, f := range o.findings {
		if name := [2]string{f.promise.Name, f.promise.Use.Part}; f.track.complete {
			highest[name] = max(highest[name], f.track.ratio())
		}
	}
	for name, ratio := range highest {
		all = append(all, Limit{name[0], name[1], ratio})
	}
	slices.SortFunc(all, func(a, b Limit) int { return strings.Compare(a.Name+" "+a.Part, b.Name+" "+b.Part) })
	return all
}

// about returns the names of the limits. If `holders` is true, it adds the names of the holders.
func about(findings []finding, holders bool) string {
	names := map[string]bool{}
	for _, f := range findings {
		name := f.limit()
		if holders {
			name += " " + f.holder
		}
		names[name] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), "; ")
}

// onePerLimit returns the first finding about each limit.
func onePerLimit(findings []finding) []finding {
	seen := map[string]bool{}
	return slices.DeleteFunc(findings, func(f finding) bool {
		before := seen[f.limit()]
		seen[f.limit()] = true
		return before
	})
}

// named returns the texts of the first findings, and the number of the others.
func named(findings []finding, text func(finding) string) string {
	var texts []string
	for _, f := range findings[:min(len(findings), mostNamed)] {
		texts = append(texts, text(f))
	}
	if more := len(findings) - mostNamed; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, ", and ")
}

// whyMissing returns the limits that are not measured, with the reasons.
func whyMissing(missing []finding) string {
	why := map[string]bool{}
	for _, f := range missing {
		reason := f.promise.Unknown
		if reason == "" {
			reason = "the kernel shows no value"
		}
		why[f.promise.Name+" ("+reason+")"] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(why)), ", ")
}

// limit names the limit, e.g. "ThrottleWriteBps of sda".
func (f finding) limit() string {
	if f.promise.Use.Part == "" {
		return f.promise.Name
	}
	return f.promise.Name + " of " + f.promise.Use.Part
}

// exceeds says how far a limit is exceeded, e.g. "pod a/b took 38M/s of 10M/s: ThrottleWriteBps of sda is exceeded by 280%".
func (f finding) exceeds() string {
	holder := f.holder
	if holder == "" {
		holder = "the class"
	}
	return fmt.Sprintf("%s took %s of %s: %s is exceeded by %.0f%%", holder,
		quantity(f.promise.Use, f.track.use()), quantity(f.promise.Use, f.promise.Bound), f.limit(), 100*(f.track.ratio()-1))
}

// uses names the limit, and how long the holder waited.
func (f finding) uses() string {
	text := f.limit() + " " + quantity(f.promise.Use, f.promise.Bound)
	if waited := f.track.waited(); waited >= 0.01 {
		text += fmt.Sprintf(" (waited %.0f%% of the time)", 100*waited)
	}
	return text
}

// quantity formats a value of a series, e.g. "38M/s".
func quantity(of classes.Series, value float64) string {
	var text string
	switch {
	case strings.Contains(of.Measure, "_bytes"):
		text = tables.Decimal(value)
	case value < 10:
		text = fmt.Sprintf("%.2g", value)
	default:
		text = fmt.Sprintf("%.0f", value)
	}
	if strings.Contains(of.Measure, "_seconds") {
		text += "s"
	}
	if of.Cumulative() {
		text += "/s"
	}
	return text
}
