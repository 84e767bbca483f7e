// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"slices"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
)

// FuzzPick decodes a request twice, once with only the fields that the plugin reads and once as a whole, and compares
// these fields.
func FuzzPick(f *testing.F) {
	whole := &api.SynchronizeRequest{
		Pods: []*api.PodSandbox{{
			Id: "sandbox", Name: "web", Uid: "uid", Namespace: "default", Pid: 7, RuntimeHandler: "runc", Ips: []string{"10.0.0.1"},
			Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": "b"},
			Linux: &api.LinuxPodSandbox{CgroupParent: "/kubepods", CgroupsPath: "/kubepods/x"},
		}},
		Containers: []*api.Container{{
			Id: "container", PodSandboxId: "sandbox", Name: "main", State: api.ContainerState_CONTAINER_RUNNING, Pid: 8, CreatedAt: 9,
			Annotations: map[string]string{"c": "d"}, Env: []string{"A=B"}, Args: []string{"/bin/true"},
			Mounts: []*api.Mount{{Source: "/"}, {Source: "/pods/uid/volumes/y", Destination: "/y/", Options: []string{"rbind"}}},
			Linux: &api.LinuxContainer{
				CgroupsPath: "/kubepods/x/y",
				Devices: []*api.LinuxDevice{
					{Path: "/dev/x", Type: "b", Major: 8, Minor: 16, FileMode: &api.OptionalFileMode{Value: 0o600}}, {Path: "/dev/null", Type: "c", Major: 1, Minor: 3},
				},
				Resources: &api.LinuxResources{Unified: map[string]string{"io.weight": "5"}, Cpu: &api.LinuxCPU{Cpus: "1"}},
			},
		}},
		More: true,
	}

	seed, err := proto.Marshal(whole)
	if err != nil {
		f.Fatal(err)
	}

	f.Add(seed)
	f.Fuzz(func(t *testing.T, encoded []byte) {
		var want, got api.SynchronizeRequest
		if proto.Unmarshal(encoded, &want) != nil {
			_, _ = decodedFields().pick(nil, slices.Clone(encoded))
			return
		}

		err := decodedFields().decode(&got, func(message any) error { return proto.Unmarshal(slices.Clone(encoded), message.(proto.Message)) })
		if err != nil {
			t.Fatalf("%v", err)
		}

		if got.GetMore() != want.GetMore() || len(got.GetPods()) != len(want.GetPods()) || len(got.GetContainers()) != len(want.GetContainers()) {
			t.Fatalf("got %v, want %v", &got, &want)
		}

		for i, c := range want.GetContainers() {
			pod, gotPod := &api.PodSandbox{}, &api.PodSandbox{}
			if i < len(want.GetPods()) {
				pod, gotPod = want.GetPods()[i], got.GetPods()[i]
			}
			if diff := cmp.Diff(containerOf(pod, c), containerOf(gotPod, got.GetContainers()[i])); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(existingOf(pod, c), existingOf(gotPod, got.GetContainers()[i])); diff != "" {
				t.Error(diff)
			}
			if g := got.GetContainers()[i]; g.GetCreatedAt() != c.GetCreatedAt() || g.GetPodSandboxId() != c.GetPodSandboxId() || len(g.GetEnv()) > 0 {
				t.Errorf("a field of the decoded container is wrong: %v", g)
			}
		}
	})
}
