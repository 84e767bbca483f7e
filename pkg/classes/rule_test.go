// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheCgroupOfAPodShowsItsQOSClass(t *testing.T) {
	for parent, want := range map[string]PodQOS{
		"/kubepods/pod0a1b-2c":                                                      Guaranteed,
		"/kubepods/burstable/pod0a1b-2c":                                            Burstable,
		"/kubepods/besteffort/pod0a1b-2c":                                           BestEffort,
		"/kubepods.slice/kubepods-pod0a1b_2c.slice":                                 Guaranteed,
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b.slice": Burstable,
		"kubepods-besteffort-pod0a1b_2c.slice":                                      BestEffort,
		"/our/root/kubepods/besteffort/pod0a1b-2c/":                                 BestEffort,
		"/our.slice/our-kubepods.slice/our-kubepods-burstable-pod0a1b_2c.slice":     Burstable,
		"":                               "",
		"/":                              "",
		"/burstable/pod0a1b-2c":          "",
		"/kubepods/burstable":            "",
		"/kubepods/burstable/pod/x":      "",
		"user.slice":                     "",
		"machine-burstable-podman.slice": "",
	} {
		if got := (&Holder{PodCgroupsPath: parent}).PodQOS(); got != want {
			t.Errorf("the QoS class of a pod in %q is %q, want %q", parent, got, want)
		}
	}
}

// digest is the digest of an image.
var digest = "sha256:" + strings.Repeat("0f", 32)

// ruledCatalog has a resource with a rule for each condition.
func ruledCatalog() *Catalog {
	return NewCatalog([]Offer{{Resource: Resource{
		Name: RDTResource, Scope: ContainerScope, DefaultClass: "bronze", Classes: twoClasses(), RuntimeHandlers: []string{"runc"}, Rules: []Rule{
			{Name: "exempt", Namespaces: []string{"kube-system", "qos"}},
			{Name: "labelled", Class: "late", Labels: notes{"app": "web", "tier": "front"}},
			{Name: "pinned", Class: "late", ImageDigests: []string{digest}},
			{Name: "both", Class: "first", Namespaces: []string{"batch"}, PodQOS: []PodQOS{BestEffort}},
			{Name: "never", Class: "late", Namespaces: []string{"kube-system"}}, // because the rule exempt is before it
		},
	}}, {Resource: Resource{Name: BlockIOResource, Scope: ContainerScope, DefaultClass: "bronze", Classes: twoClasses()}}})
}

func TestTheFirstRuleThatMatchesDecidesTheClassOfAContainerThatRequestsNothing(t *testing.T) {
	byRule := func(rule, class string) Assignment { return Assignment{RDTResource, class, SourceRule, rule} }
	byDefault := Assignment{RDTResource, "bronze", SourceDefault, ""}
	for _, c := range []struct {
		name   string
		holder Holder
		want   Assignment
	}{
		{"nothing matches", Holder{PodNamespace: "default"}, byDefault},
		{"a namespace whose rule assigns no class", Holder{PodNamespace: "kube-system"}, byRule("exempt", "")},
		{"the second namespace", Holder{PodNamespace: "qos"}, byRule("exempt", "")},
		{"all labels", Holder{PodLabels: notes{"app": "web", "tier": "front", "x": "y"}}, byRule("labelled", "late")},
		{"one of two labels", Holder{PodLabels: notes{"app": "web"}}, byDefault},
		{"a label with another value", Holder{PodLabels: notes{"app": "web", "tier": ""}}, byDefault},
		{"the digest of the image", Holder{ImageDigest: digest}, byRule("pinned", "late")},
		{"both conditions", Holder{PodNamespace: "batch", PodCgroupsPath: "/kubepods/besteffort/podu"}, byRule("both", "first")},
		{"one of two conditions", Holder{PodNamespace: "batch", PodCgroupsPath: "/kubepods/burstable/podu"}, byDefault},
		{"a runtime handler that the resource does not serve", Holder{PodNamespace: "kube-system", RuntimeHandler: "kata"},
			Assignment{Resource: RDTResource, Source: SourceRuntimeHandler}},
		{"a request overrides the rules", Holder{PodNamespace: "kube-system", PodAnnotations: notes{PodKey: "rdt=gold"}}, Assignment{RDTResource, "gold", SourcePod, PodKey}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.holder.Container = "main"
			got, err := ruledCatalog().Resolve(c.holder)
			want := []Assignment{c.want, {BlockIOResource, "bronze", SourceDefault, ""}}
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestRulesOfAClassFile(t *testing.T) {
	config, err := parseText(resource("name: rdt", "defaultClass: bronze",
		"match:",
		`- {name: exempt, class: "", namespaces: [kube-system]}`,
		"- {name: batch, class: bronze, labels: {app: batch}, podQOS: [Burstable, BestEffort], imageDigests: ["+digest+"]}",
		"classes: [{name: gold, capacity: 1}, {name: bronze}]", gold))
	if err != nil {
		t.Fatal(err)
	}
	want := []Rule{
		{Name: "exempt", Namespaces: []string{"kube-system"}},
		{Name: "batch", Class: "bronze", Labels: notes{"app": "batch"}, PodQOS: []PodQOS{Burstable, BestEffort}, ImageDigests: []string{digest}},
	}
	if diff := cmp.Diff(want, config.Resources[0].Rules); diff != "" {
		t.Errorf("rules differ (-want +got):\n%s", diff)
	}
}

func TestThePodQOSClassCannotBeRequested(t *testing.T) {
	_, err := resolveMain(testCatalog(), notes{PodKey: "pod-qos=Guaranteed"}, nil)
	want := "pod default/web container main: pod-qos cannot be requested: the Pod QoS class follows from the requests and limits of the pod (requested by annotation qos.noderesource.dev/pod)"
	if !errors.Is(err, ErrBadRequest) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
