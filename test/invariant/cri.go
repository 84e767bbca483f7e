// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// LiveByCRI lists pods and containers over CRI, for Machine.Live. The function `cgroup` returns the cgroup of the container with an ID,
// or of the pod if the ID is empty.
func LiveByCRI(runtime cri.RuntimeServiceClient, cgroup func(pod *cri.PodSandbox, id string) string) func(context.Context) (Live, error) {
	return func(ctx context.Context) (Live, error) {
		var live Live
		pods, err := runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
		if err != nil {
			return live, err
		}

		containers, err := runtime.ListContainers(ctx, &cri.ListContainersRequest{})
		if err != nil {
			return live, err
		}

		byID := map[string]*cri.PodSandbox{}
		for _, p := range pods.GetItems() {
			if p.GetState() == cri.PodSandboxState_SANDBOX_READY {
				byID[p.GetId()] = p
				live.Pods = append(live.Pods, Pod{
					UID: p.GetMetadata().GetUid(), Namespace: p.GetMetadata().GetNamespace(), Name: p.GetMetadata().GetName(), ID: p.GetId(),
					Cgroup: cgroup(p, ""),
				})
			}
		}

		for _, c := range containers.GetContainers() {
			p := byID[c.GetPodSandboxId()]
			if p == nil || c.GetState() == cri.ContainerState_CONTAINER_EXITED {
				continue
			}
			live.Containers = append(live.Containers, Container{
				PodUID: p.GetMetadata().GetUid(), PodNamespace: p.GetMetadata().GetNamespace(), PodName: p.GetMetadata().GetName(),
				Name: c.GetMetadata().GetName(), ID: c.GetId(), Cgroup: cgroup(p, c.GetId()),
				Started: c.GetState() == cri.ContainerState_CONTAINER_RUNNING,
			})
		}

		return live, nil
	}
}
