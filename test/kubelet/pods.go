// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	devicepluginv1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Pod is a pod that is to be admitted.
type Pod struct {
	Namespace, Name string
	// InitContainers run one after another and end. Then Containers run.
	InitContainers, Containers []Container
}

// Container is a container of a pod.
type Container struct {
	Name string
	// Limits has the extended resources in the container's limits.
	Limits map[string]int
}

type podKey struct{ namespace, name string }

type pod struct {
	// known is true if kubelet has read the pod since its start, from the API or from the directory of static pods.
	known bool
	// containers has the containers that the pod-resources API lists. These are not the init containers.
	containers []string
	held       map[string]map[string]*allocation // by container (init containers included), then by resource
	listed     int
}

type allocation struct {
	ids         []string
	annotations map[string]string
}

// Admit allocates the devices that a pod's containers request. If that fails, the pod is removed.
func (k *Kubelet) Admit(ctx context.Context, p Pod) error {
	key := podKey{p.Namespace, p.Name}
	made := &pod{known: true, held: map[string]map[string]*allocation{}}
	for _, c := range p.Containers {
		made.containers = append(made.containers, c.Name)
	}

	k.mu.Lock()
	_, there := k.pods[key]
	if !there {
		k.pods[key] = made
	}

	k.mu.Unlock()
	if there {
		return fmt.Errorf("pod %s/%s already exists", p.Namespace, p.Name)
	}

	reusable := map[string][]string{}
	for i, c := range append(slices.Clone(p.InitContainers), p.Containers...) {
		for _, resource := range slices.Sorted(maps.Keys(c.Limits)) {
			ids, err := k.allocate(ctx, made, c, resource, reusable[resource])
			if err != nil {
				k.Remove(p.Namespace, p.Name)
				return fmt.Errorf("allocate failed due to %w, which is unexpected", err)
			}
			if i < len(p.InitContainers) {
				reusable[resource] = append(reusable[resource], ids...)
			} else {
				reusable[resource] = without(reusable[resource], ids)
			}
		}
	}

	return nil
}

// Readmit makes a restarted kubelet admit a pod again whose containers do not run. From then on, the pod-resources API
// lists the pod. The devices of its containers must be healthy. Otherwise the pod fails and is removed.
func (k *Kubelet) Readmit(namespace, name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.announce()
	key := podKey{namespace, name}
	p := k.pods[key]
	switch {
	case k.run == nil:
		return errors.New("kubelet does not run")
	case p == nil || p.known:
		return fmt.Errorf("pod %s/%s is not waiting", namespace, name)
	}

	p.known = true
	for _, devices := range p.held {
		for resource, held := range devices {
			if err := k.resources[resource].canHold(resource, held.ids); err != nil {
				delete(k.pods, key)
				return fmt.Errorf("allocate failed due to %w, which is unexpected", err)
			}
		}
	}

	return nil
}

// canHold checks, as kubelet does, that devices which are already allocated to a container are still healthy.
func (r *resource) canHold(name string, ids []string) error {
	switch {
	case r.devices == nil:
		return fmt.Errorf("cannot allocate unregistered device %s", name)
	case len(r.healthy()) == 0:
		return fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", name)
	case len(without(ids, r.healthy())) > 0:
		return fmt.Errorf("previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s", name)
	}
	return nil
}

func without(list, taken []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(id string) bool { return slices.Contains(taken, id) })
}

// allocate chooses devices, first those that init containers of the pod have used, and then calls Allocate of the
// device plugin.
func (k *Kubelet) allocate(ctx context.Context, made *pod, c Container, name string, reusable []string) ([]string, error) {
	ids, plugin, err := k.choose(name, c.Limits[name], reusable)
	if err != nil {
		return nil, err
	}

	answer, err := plugin.Allocate(ctx, &devicepluginv1beta1.AllocateRequest{
		ContainerRequests: []*devicepluginv1beta1.ContainerAllocateRequest{{DevicesIds: ids}},
	})
	if err != nil {
		return nil, err
	}

	if len(answer.GetContainerResponses()) == 0 {
		return nil, errors.New("no containers return in allocation response")
	}

	if k.DuringAllocate != nil {
		k.DuringAllocate()
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.resources[name]
	for _, id := range ids {
		if _, listed := r.devices[id]; !listed {
			k.crash = fmt.Errorf("device %s of %s was listed when it was chosen, but is not listed after Allocate", id, name)
		}
	}

	if made.held[c.Name] == nil {
		made.held[c.Name] = map[string]*allocation{}
	}

	made.held[c.Name][name] = &allocation{ids: ids, annotations: answer.GetContainerResponses()[0].GetAnnotations()}
	k.announce()
	return ids, nil
}

func (k *Kubelet) choose(name string, n int, reusable []string) ([]string, devicepluginv1beta1.DevicePluginClient, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.resources[name]
	switch {
	case k.run == nil:
		return nil, nil, errors.New("kubelet does not run")
	case r == nil || r.client == nil || r.stopped:
		return nil, nil, fmt.Errorf("cannot allocate unregistered device %s", name)
	}

	ids := slices.Clone(reusable[:min(n, len(reusable))])
	free := without(r.healthy(), k.used(name))
	ids = append(ids, free[:min(n-len(ids), len(free))]...)

	if len(ids) < n {
		return nil, nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", name, n, len(ids))
	}

	return ids, r.client.api, nil
}

// used returns the allocated devices of a resource. The caller holds mu.
func (k *Kubelet) used(name string) (ids []string) {
	for _, p := range k.pods {
		for _, held := range p.held {
			if held[name] != nil {
				ids = append(ids, held[name].ids...)
			}
		}
	}
	return ids
}

// Remove ends a pod and frees its devices.
func (k *Kubelet) Remove(namespace, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pods, podKey{namespace, name})
	k.announce()
}

// Annotations returns the annotations that device plugins have given a container.
func (k *Kubelet) Annotations(namespace, name, container string) map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[string]string{}
	if p := k.pods[podKey{namespace, name}]; p != nil {
		for _, held := range p.held[container] {
			maps.Copy(all, held.annotations)
		}
	}
	return all
}

// Devices returns the IDs of a container's devices of a resource.
func (k *Kubelet) Devices(namespace, name, container, resource string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.pods[podKey{namespace, name}]; p != nil && p.held[container][resource] != nil {
		return slices.Clone(p.held[container][resource].ids)
	}
	return nil
}

// Lists counts the requests to the pod-resources API.
func (k *Kubelet) Lists() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lists
}

// Listed returns how many answers of the pod-resources API contained the pod.
func (k *Kubelet) Listed(namespace, name string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.pods[podKey{namespace, name}]; p != nil {
		return p.listed
	}
	return 0
}

// lister answers the pod-resources API.
type lister struct {
	podresourcesv1.UnimplementedPodResourcesListerServer

	kubelet *Kubelet
}

// List returns the devices of the containers of all known pods, without those of init containers.
func (l *lister) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	k := l.kubelet
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lists++
	k.announce()
	answer := &podresourcesv1.ListPodResourcesResponse{}
	for _, key := range slices.SortedFunc(maps.Keys(k.pods), func(a, b podKey) int {
		return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name)
	}) {
		p := k.pods[key]
		if !p.known {
			continue
		}
		p.listed++
		listed := &podresourcesv1.PodResources{Namespace: key.namespace, Name: key.name}
		for _, name := range p.containers {
			ctr := &podresourcesv1.ContainerResources{Name: name}
			for resource, held := range p.held[name] {
				for _, id := range held.ids {
					ctr.Devices = append(ctr.Devices, &podresourcesv1.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}})
				}
			}
			listed.Containers = append(listed.Containers, ctr)
		}
		answer.PodResources = append(answer.PodResources, listed)
	}

	return answer, nil
}
