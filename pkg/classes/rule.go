// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

// Rule gives a class to the containers or pods that match it and request nothing.
type Rule struct {
	Name string
	// Class is an unlimited class of the resource, or SystemDefault.
	Class string
	// A rule matches a holder that fulfils all of its conditions. A condition that is nil is always fulfilled.
	Namespaces []string
	// Labels has the labels that the pod must have. Labels that were changed after the creation of the pod do not count, because the runtime
	// does not learn of them.
	Labels map[string]string
	PodQOS []PodQOS
	// ImageDigests has digests of the image of the container, e.g. "sha256:…".
	ImageDigests []string
}

// Matches reports whether a holder fulfils all conditions of the rule.
func (r *Rule) Matches(h *Holder) bool {
	for key, value := range r.Labels {
		if has, ok := h.PodLabels[key]; !ok || has != value {
			return false
		}
	}
	return (r.Namespaces == nil || slices.Contains(r.Namespaces, h.PodNamespace)) &&
		(r.PodQOS == nil || slices.Contains(r.PodQOS, h.PodQOS())) &&
		(r.ImageDigests == nil || h.ImageDigest != "" && slices.Contains(r.ImageDigests, h.ImageDigest))
}

// PodQOS is the Pod QoS class, which the kubelet derives from the requests and limits of a pod.
type PodQOS string

// These are the Pod QoS classes.
const (
	Guaranteed PodQOS = "Guaranteed"
	Burstable  PodQOS = "Burstable"
	BestEffort PodQOS = "BestEffort"
)

// PodQOS returns the Pod QoS class of the holder's pod, or "" if the pod has no cgroup of the kubelet. The kubelet has one parent cgroup for
// each class. The pod's cgroup is "/kubepods/burstable/pod<UID>" with the driver cgroupfs, and "kubepods-burstable-pod<UID>.slice" with the
// driver systemd. Guaranteed pods are directly in kubepods.
func (h *Holder) PodQOS() PodQOS {
	parent, separator := strings.TrimSuffix(h.PodCgroupsPath, "/"), "/"
	if slice, ok := strings.CutSuffix(parent, ".slice"); ok {
		parent, separator = slice[strings.LastIndex(slice, "/")+1:], "-"
	}
	parent, pod := cutLast(parent, separator)
	if !strings.HasPrefix(pod, "pod") {
		return ""
	}

	above, last := cutLast(parent, separator)
	_, kubepods := cutLast(above, separator)
	switch {
	case last == "kubepods":
		return Guaranteed
	case kubepods == "kubepods" && last == "burstable":
		return Burstable
	case kubepods == "kubepods" && last == "besteffort":
		return BestEffort
	}
	return ""
}

// cutLast returns the parts of a text before and after the last separator.
func cutLast(text, separator string) (before, after string) {
	if i := strings.LastIndex(text, separator); i >= 0 {
		return text[:i], text[i+len(separator):]
	}
	return "", text
}

// readRules reads the rules of a resource. checkClasses checks their classes.
func (r *draft) readRules(f *Field) {
	if f == nil {
		return
	}
	if r.Scope == VolumeScope {
		f.Report("must be omitted: volumes have only the classes that pods request")
		return
	}
	for _, rule := range f.filled("has no rule; omit the field, or add a rule such as {name: batch, namespaces: [batch], class: bronze}") {
		r.readRule(rule)
	}
}

func (r *draft) readRule(f *Field) {
	fields := f.ExactFields("name", "class", "namespaces", "labels", "podQOS", "imageDigests")
	if fields == nil {
		return
	}

	rule := Rule{
		Namespaces: texts(fields["namespaces"], "the name of a namespace", func(text string) bool { return len(content.IsDNS1123Label(text)) == 0 }),
		Labels:     labels(fields["labels"]),
		PodQOS: texts(fields["podQOS"], "a Pod QoS class; write Guaranteed, Burstable or BestEffort", func(class PodQOS) bool {
			return class == Guaranteed || class == Burstable || class == BestEffort
		}),
		ImageDigests: texts(fields["imageDigests"], "a digest; write one such as sha256: and 64 hexadecimal digits", imageDigest.MatchString),
	}
	rule.Name, _ = fields["name"].Text()
	rule.Class, _ = fields["class"].Text()
	switch {
	case rule.Namespaces == nil && rule.Labels == nil && rule.PodQOS == nil && rule.ImageDigests == nil:
		f.Report("matches every pod; add namespaces, labels, podQOS or imageDigests, or use the resource's field defaultClass")
	case rule.ImageDigests != nil && r.Scope == PodScope:
		fields["imageDigests"].Report("must be omitted: a pod has no image, only its containers have")
	}
	r.nameRule(rule.Name, f, fields["name"])
	if fields["class"] == nil {
		f.reportMissing("class", `is missing; write the class that the rule assigns, or "" for none`)
	}
	r.Rules = append(r.Rules, rule)
	r.rules = append(r.rules, fields["class"])
}

// nameRule checks the name of a rule. Reports show this name as the source of a class.
func (r *draft) nameRule(name string, rule, f *Field) {
	switch {
	case f == nil:
		rule.reportMissing("name", "is missing; give the rule a name, which reports show as the source of the class")
	case len(content.IsDNS1123Label(name)) > 0:
		f.Report("%s cannot be the name of a rule; use at most 63 lower-case letters, digits and dashes", quote(name))
	case slices.ContainsFunc(r.Rules, func(other Rule) bool { return other.Name == name }):
		f.Report("another rule is already named %s", quote(name))
	}
}

var imageDigest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// texts returns the values of a list, or nil if the field is missing. It reports an empty list, and each value for
// which `valid` returns false. `what` describes valid values.
func texts[T ~string](f *Field, what string, valid func(T) bool) []T {
	if f == nil {
		return nil
	}

	elements := f.filled("is empty; omit the field")
	values := make([]T, 0, len(elements))
	for _, element := range elements {
		text, ok := element.Text()
		if ok && !valid(T(text)) {
			element.Report("%s is not %s", quote(text), what)
		}
		values = append(values, T(text))
	}
	return values
}

// labels returns the labels of a field, or nil if the field is missing.
func labels(f *Field) map[string]string {
	if f == nil {
		return nil
	}

	entries := f.Entries()
	if len(entries) == 0 && (f.isMapping() || f.IsNull()) {
		f.Report("is empty; omit the field")
	}
	all := make(map[string]string, len(entries))
	for _, field := range entries {
		text, ok := field.Text()
		switch {
		case len(content.IsLabelKey(field.Name)) > 0:
			field.Report("cannot be the key of a label; use a name such as app or vendor.example/tier")
		case ok && len(content.IsLabelValue(text)) > 0:
			field.Report("%s cannot be the value of a label; use at most 63 letters, digits, dashes, dots and underscores", quote(text))
		}
		all[field.Name] = text
	}
	return all
}

// checkRules reports the rules whose class does not exist or has a capacity.
func (r *draft) checkRules() {
	for i, rule := range r.Rules {
		if f := r.rules[i]; f != nil && rule.Class != SystemDefault {
			r.checkUnlimited(f, rule.Class, "the class of a rule")
		}
	}
}
