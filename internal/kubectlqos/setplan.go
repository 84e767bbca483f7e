// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// removed is behind a resource that is not to be asked for any more, as kubectl has it for labels.
const removed = "-"

// change is what is to be asked for in another way.
type change struct {
	// pairs are as they were written, of distinct resources; classes are those resources' classes.
	pairs []string
	// resources are canonical, those that are taken away included, in the order of the command line.
	resources []string
	gone      map[string]bool
}

// parseChange reads "resource=class" and "resource-", also several with commas between.
func parseChange(args []string) (change, error) {
	c := change{gone: map[string]bool{}}
	for word := range strings.SplitSeq(strings.Join(args, ","), ",") {
		word = strings.TrimSpace(word)
		name, takeAway := strings.CutSuffix(word, removed)
		takeAway = takeAway && !strings.Contains(word, "=")
		if !takeAway {
			name, _, _ = strings.Cut(word, "=")
			c.pairs = append(c.pairs, word)
		}
		if name == "" {
			return c, fmt.Errorf("%q names no resource; write it as in rdt=silver, or rdt- to ask no more", word)
		}
		resource := classes.CanonicalResource(name)
		if slices.Contains(c.resources, resource) {
			return c, fmt.Errorf("%s is there twice; name each resource once", resource)
		}
		c.resources = append(c.resources, resource)
		c.gone[resource] = takeAway
	}
	if _, err := classes.ParsePairs(strings.Join(c.pairs, ",")); err != nil {
		return c, fmt.Errorf("%w; write it as in rdt=silver, or rdt- to ask no more", err)
	}
	return c, nil
}

// merge puts a change into the value of an annotation. Pairs of other resources stay as they were written.
func (c change) merge(value string) (string, error) {
	if _, err := classes.ParsePairs(value); err != nil {
		return "", err
	}
	todo := map[string]string{}
	for _, pair := range c.pairs {
		name, _, _ := strings.Cut(pair, "=")
		todo[classes.CanonicalResource(name)] = pair
	}
	var pairs []string
	for pair := range strings.SplitSeq(value, ",") {
		pair = strings.TrimSpace(pair)
		name, _, _ := strings.Cut(pair, "=")
		resource := classes.CanonicalResource(name)
		other, changed := todo[resource]
		switch {
		case pair == "", c.gone[resource]:
		case changed:
			pairs = append(pairs, other)
			delete(todo, resource)
		case !slices.Contains(c.resources, resource):
			pairs = append(pairs, pair)
		}
	}
	for _, pair := range c.pairs {
		name, _, _ := strings.Cut(pair, "=")
		if _, left := todo[classes.CanonicalResource(name)]; left {
			pairs = append(pairs, pair)
		}
	}
	return strings.Join(pairs, ","), nil
}

// target is a class that a running container shall have after a change.
type target struct {
	container, resource string
	// before is what it has now, if that is known.
	before assignment
	known  bool
	class  string
}

// settingPlan is what there is to do for a change of one pod.
type settingPlan struct {
	pod  *corev1.Pod
	node *nodeqosv1alpha1.NodeQOSResources
	// key and value are of the annotation; an empty value takes it away. had is what it is now.
	key, value, had string
	targets         []target
}

func (p *settingPlan) unchanged() bool { return p.value == p.had }

// newSettingPlan checks a change as the node would, and says what it comes to. container is empty for a change of all containers.
func newSettingPlan(
	pod *corev1.Pod, node *nodeqosv1alpha1.NodeQOSResources, container string, c change, now time.Time,
) (*settingPlan, error) {
	if node == nil {
		return nil, fmt.Errorf("node %q of pod %s tells nothing of QoS-class resources; does qos-kubelet-shim run there?", pod.Spec.NodeName, pod.Name)
	}
	p := &settingPlan{pod: pod, node: node, key: classes.PodKey}
	if container != "" {
		p.key = classes.ContainerKeyPrefix + container
	}
	p.had = pod.Annotations[p.key]
	var err error
	if p.value, err = c.merge(p.had); err != nil {
		return nil, fmt.Errorf("annotation %s of pod %s: %w; mend it with kubectl annotate --overwrite", p.key, pod.Name, err)
	}
	v := &podView{pod: pod, node: node, offers: offersOf(node), now: now}
	v.catalog = classes.NewCatalog(v.offers)
	if err := v.checkOffers(c, container); err != nil {
		return nil, err
	}
	p.targets, err = v.targets(p, container, c)
	return p, err
}

// checkOffers refuses what can never be changed in a running pod. What else is wrong is found when the request is resolved.
func (v *podView) checkOffers(c change, container string) error {
	for _, resource := range c.resources {
		offer, known := v.catalog.Lookup(resource)
		switch {
		case !known:
			continue
		case offer.Scope == classes.PodScope && offer.Unavailable == nil && !offer.Mutable:
			return fmt.Errorf("the class of %s is the pod's, and cannot be changed while it runs; create the pod anew", resource)
		case offer.Scope == classes.PodScope && container != "":
			return fmt.Errorf("the class of %s is the pod's, not a container's; change it with --pod", resource)
		case offer.Unavailable == nil && !offer.Mutable:
			return fmt.Errorf("the class of %s cannot be changed while a container runs; create the pod anew", resource)
		}
	}
	for _, r := range scopedResources(v.node) {
		for _, class := range r.Classes {
			if class.Draining && slices.ContainsFunc(c.pairs, func(pair string) bool { return isPair(pair, r.Name, class.Name) }) {
				return fmt.Errorf("class %q of %s is no longer configured on %s, and takes nobody new; choose another", class.Name, r.Name, v.node.Name)
			}
		}
	}
	return nil
}

func isPair(pair, resource, class string) bool {
	name, of, _ := strings.Cut(pair, "=")
	return classes.CanonicalResource(name) == resource && of == class
}

// targets are the classes that containers, and the pod itself, shall have after a plan, by the rules of the node.
func (v *podView) targets(p *settingPlan, container string, c change) ([]target, error) {
	after := *v.pod
	after.Annotations = maps.Clone(v.pod.Annotations)
	if after.Annotations == nil {
		after.Annotations = map[string]string{}
	}
	after.Annotations[p.key] = p.value
	if p.value == "" {
		delete(after.Annotations, p.key)
	}
	var targets []target
	var deaf []string // containers that something else asks for
	for _, of := range append(containersOf(v.pod), containerView{}) {
		alive, _ := v.alive(of)
		if !alive || container != "" && of.name != container {
			continue
		}
		wanted, err := v.catalog.Resolve(requestOf(v.offers, &after, of.name))
		if err != nil {
			return nil, v.refused(err)
		}
		for _, want := range wanted {
			if !slices.Contains(c.resources, want.Resource) {
				continue
			}
			if !c.gone[want.Resource] && want.Key != p.key {
				deaf = append(deaf, fmt.Sprintf("%s (by %s)", of.name, keyText(want.Key)))
				continue
			}
			has, is := v.effective(of, want.Resource, "")
			targets = append(targets, target{of.name, want.Resource, has, is == inClass, want.Class})
		}
	}
	if len(targets) == 0 && len(deaf) > 0 {
		return nil, fmt.Errorf("the pod's request changes nothing: containers ask for themselves: %s; name one with -c", strings.Join(deaf, ", "))
	}
	return targets, nil
}

// refused is what the node's rules say against a request, in words for somebody who is not on the node.
func (v *podView) refused(err error) error {
	var refused *classes.RequestError
	if !errors.As(err, &refused) {
		return err
	}
	_, message := refusal(refused, false)
	text := strings.Replace(message, "on this node", "on "+v.node.Name, 1)
	if errors.Is(err, classes.ErrContradiction) && strings.Contains(text, "allocated class") {
		text += "; limits of a running pod cannot be changed, so create the pod anew"
	}
	if refused.Holder.Container != "" {
		text = "container " + refused.Holder.Container + ": " + text
	}
	return fmt.Errorf("pod/%s %s", v.pod.Name, text)
}
