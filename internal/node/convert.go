// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import "github.com/qos-nri/qos-nri-plugin/pkg/classes"

func containerRequest(pod Pod, ctr Container) classes.Holder {
	h := containerTarget(pod, ctr)
	h.PodAnnotations, h.ContainerAnnotations = pod.Annotations, ctr.Annotations
	return h
}

func podRequest(pod Pod) classes.Holder {
	h := podTarget(pod)
	h.PodAnnotations = pod.Annotations
	return h
}

func containerHolder(pod Pod, ctr Container, assignments []classes.Assignment) classes.Holding {
	return classes.Holding{Holder: containerTarget(pod, ctr), Assignments: assignments}
}

func podHolder(pod Pod, assignments []classes.Assignment) classes.Holding {
	return classes.Holding{Holder: podTarget(pod), Assignments: assignments}
}

func containerTarget(pod Pod, ctr Container) classes.Holder {
	return classes.Holder{
		PodUID: pod.UID, PodName: pod.Name, PodNamespace: pod.Namespace, Container: ctr.Name,
		ID: ctr.ID, SandboxID: pod.ID, CgroupsPath: ctr.CgroupsPath, PID: ctr.PID,
	}
}

func podTarget(pod Pod) classes.Holder {
	return classes.Holder{
		PodUID: pod.UID, PodName: pod.Name, PodNamespace: pod.Namespace, ID: pod.ID, SandboxID: pod.ID, CgroupsPath: pod.CgroupParent,
	}
}

// describe names a holder in errors.
func describe(h classes.Holding) string { return h.String() }
