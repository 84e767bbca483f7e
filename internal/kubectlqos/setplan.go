// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// removed is a suffix of a resource's name on the command line. For example, "rdt-" removes the request for rdt.
const removed = "-"

// change is the change that the user requests on the command line.
type change struct {
	// resources lists the resources in the order of the command line.
	resources []string
	// pairs maps a resource to its pair RESOURCE=CLASS as the user wrote it. If a resource has no pair, the change
	// removes the request for this resource.
	pairs map[string]string
}

func parseChange(args []string) (change, error) {
	c := change{pairs: map[string]string{}}
	for word := range strings.SplitSeq(strings.Join(args, ","), ",") {
		word = strings.TrimSpace(word)
		name, _, isPair := strings.Cut(word, "=")
		if !isPair {
			name, isPair = strings.CutSuffix(word, removed)
			isPair = !isPair // ParsePairs below reports a word that is neither a pair nor a removal
		}
		if name == "" {
			return c, fmt.Errorf("%q names no resource; write a request like rdt=silver, or rdt- to remove the request", word)
		}
		resource := classes.CanonicalResource(name)
		if slices.Contains(c.resources, resource) {
			return c, fmt.Errorf("%s is named twice; write each resource once", resource)
		}
		c.resources = append(c.resources, resource)
		if isPair {
			c.pairs[resource] = word
		}
	}

	if _, err := classes.ParsePairs(strings.Join(c.pairsBut(nil), ",")); err != nil {
		return c, fmt.Errorf("%w; write a request like rdt=silver, or rdt- to remove the request", err)
	}
	return c, nil
}

// pairsBut returns the pairs of the change, except those of `resources`.
func (c change) pairsBut(resources []string) (pairs []string) {
	for _, resource := range c.resources {
		if pair, ok := c.pairs[resource]; ok && !slices.Contains(resources, resource) {
			pairs = append(pairs, pair)
		}
	}
	return pairs
}

// merge applies the change to the value of an annotation. The value keeps the pairs of other resources.
func (c change) merge(value string) (string, error) {
	if _, err := classes.ParsePairs(value); err != nil {
		return "", err
	}

	var pairs, done []string
	for pair := range strings.SplitSeq(value, ",") {
		pair = strings.TrimSpace(pair)
		name, _, _ := strings.Cut(pair, "=")
		resource := classes.CanonicalResource(name)
		switch other, changed := c.pairs[resource]; {
		case pair == "" || slices.Contains(done, resource):
		case changed:
			pairs, done = append(pairs, other), append(done, resource)
		case !slices.Contains(c.resources, resource):
			pairs = append(pairs, pair)
		}
	}
	return strings.Join(append(pairs, c.pairsBut(done)...), ","), nil
}

// target is the class that a running container will have after a change.
type target struct {
	container, resource, class string
	// before is the class before the change. It is nil if this class is unknown.
	before *string
	// refused is the message of a refusal that the node had reported before this change.
	refused string
}

// settingPlan is a change of the annotation `key` of a pod from `had` to `value`, with the containers that it affects.
type settingPlan struct {
	pod             *corev1.Pod
	node            *nodeqosv1alpha1.NodeQOSResources
	key, value, had string
	targets         []target
}

func (p *settingPlan) unchanged() bool { return p.value == p.had }

// newSettingPlan makes a plan for a change. It returns an error if the node lacks a requested class, or if no shim
// would make the change. Otherwise the node decides later. If `container` is empty, the change is for all containers.
func newSettingPlan(
	pod *corev1.Pod, node *nodeqosv1alpha1.NodeQOSResources, container string, c change, now time.Time,
) (*settingPlan, error) {
	if node == nil {
		return nil, fmt.Errorf("node %q of pod %s has no NodeQOSResources; check that qos-kubelet-shim runs there", pod.Spec.NodeName, pod.Name)
	}
	p := &settingPlan{pod: pod, node: node, key: classes.PodKey}
	if container != "" {
		p.key = classes.ContainerKeyPrefix + container
	}
	p.had = pod.Annotations[p.key]
	var err error
	if p.value, err = c.merge(p.had); err != nil {
		return nil, fmt.Errorf("annotation %s of pod %s: %w; repair it with kubectl annotate --overwrite", p.key, pod.Name, err)
	}

	v := newPodView(pod, node, offersOf(node), now)
	v.catalog = v.catalog.At("on " + node.Name)
	if p.targets, err = v.targets(p, container, c); err != nil {
		return nil, err
	}
	missing := func(t target) bool { return t.before == nil || *t.before != t.class }
	if p.unchanged() && !slices.ContainsFunc(p.targets, missing) {
		return p, nil
	}

	if _, problem := notCurrent(node, now); problem != "" {
		return nil, fmt.Errorf("pod/%s cannot be changed, because %s; see kubectl qos nodes %s", pod.Name, problem, node.Name)
	}
	if !node.Status.FollowsAnnotations {
		return nil, fmt.Errorf("pod/%s cannot be changed by annotation, because qos-kubelet-shim of %s runs without --follow-annotations; "+
			"add this flag as deploy/kubernetes-follow-annotations and the value followAnnotations of the Helm chart do, "+
			"or run \"qos-nri-plugin update\" on the node", pod.Name, node.Name)
	}
	return p, nil
}

// targets returns the running containers whose class will change. A change of the pod's request does not affect
// containers with their own request.
func (v *podView) targets(p *settingPlan, container string, c change) ([]target, error) {
	after := v.pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, p.key, p.value)
	if p.value == "" {
		delete(after.Annotations, p.key)
	}

	var targets []target
	var overridden []string
	for _, of := range append(containersOf(v.pod), viewOf(v.pod, "", nil)) {
		alive, _ := v.alive(of)
		if !alive || container != "" && of.Container != container {
			continue
		}
		wanted, err := v.catalog.Resolve(requestOf(v.offers, after, of))
		if err != nil {
			return nil, v.refused(err)
		}
		for _, want := range wanted {
			_, isPair := c.pairs[want.Resource]
			switch {
			case !slices.Contains(c.resources, want.Resource):
			case isPair && want.Key != p.key:
				overridden = append(overridden, fmt.Sprintf("%s (by %s)", of.Container, keyText(want.Key)))
			default:
				t := target{container: of.Container, resource: want.Resource, class: want.Class}
				if has, is := v.effective(of, want.Resource, ""); is == inClass {
					t.before = &has.class
				}
				if refusal := refusalOf(v.node, v.pod, of); refusal != nil {
					t.refused = refusal.Message
				}
				targets = append(targets, t)
			}
		}
	}
	if len(targets) == 0 && len(overridden) > 0 {
		return nil, fmt.Errorf("the pod's request changes nothing, because its containers have their own requests: %s; "+
			"choose a container with -c", strings.Join(overridden, ", "))
	}
	return targets, nil
}

func (v *podView) refused(err error) error {
	var refused *classes.RequestError
	if !errors.As(err, &refused) {
		return err
	}

	text := refused.Problem
	if errors.Is(err, classes.ErrAllocated) {
		text += "; limits of a running pod cannot be changed, so recreate the pod"
	}
	if refused.Holder.Container != "" {
		text = "container " + refused.Holder.Container + ": " + text
	}
	return fmt.Errorf("pod/%s %s", v.pod.Name, text)
}
