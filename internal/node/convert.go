// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

func containerRequest(pod Pod, ctr Container) classes.Request {
	r := podRequest(pod)
	r.Container, r.ContainerAnnotations = ctr.Name, ctr.Annotations
	return r
}

func podRequest(pod Pod) classes.Request {
	return classes.Request{PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID, PodAnnotations: pod.Annotations}
}

func containerHolder(pod Pod, ctr Container, assignments []classes.Assignment) classes.Holder {
	return classes.Holder{
		ID: ctr.ID, Owner: classes.Owner{PodUID: pod.UID, Container: ctr.Name},
		PodNamespace: pod.Namespace, PodName: pod.Name, Assignments: assignments,
	}
}

func podHolder(pod Pod, assignments []classes.Assignment) classes.Holder {
	return classes.Holder{
		ID: pod.ID, Owner: classes.Owner{PodUID: pod.UID},
		PodNamespace: pod.Namespace, PodName: pod.Name, Assignments: assignments,
	}
}

func containerTarget(pod Pod, ctr Container) classes.Target {
	return classes.Target{
		PodUID: pod.UID, PodName: pod.Name, PodNamespace: pod.Namespace, Container: ctr.Name,
		ID: ctr.ID, CgroupsPath: ctr.CgroupsPath, PID: ctr.PID,
	}
}

func podTarget(pod Pod) classes.Target {
	return classes.Target{
		PodUID: pod.UID, PodName: pod.Name, PodNamespace: pod.Namespace, ID: pod.ID, CgroupsPath: pod.CgroupParent,
	}
}

// describe names a holder in errors.
func describe(h classes.Holder) string {
	if h.Owner.Container == "" {
		return fmt.Sprintf("pod %s/%s", h.PodNamespace, h.PodName)
	}
	return fmt.Sprintf("pod %s/%s container %s", h.PodNamespace, h.PodName, h.Owner.Container)
}
