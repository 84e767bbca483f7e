// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// FuzzPick decodes a request twice, once with only the fields that the plugin reads and once as a whole, and compares
// these fields.
func FuzzPick(f *testing.F) {
	whole := &api.SynchronizeRequest{
		Pods: []*api.PodSandbox{{
			Id: "sandbox", Name: "web", Uid: "uid", Namespace: "default", Pid: 7, RuntimeHandler: "runc", Ips: []string{"10.0.0.1"},
			Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": "b", classes.PodKey: "rdt=gold"},
			Linux: &api.LinuxPodSandbox{CgroupParent: "/kubepods", CgroupsPath: "/kubepods/x"},
		}},
		Containers: []*api.Container{{
			Id: "container", PodSandboxId: "sandbox", Name: "main", State: api.ContainerState_CONTAINER_RUNNING, Pid: 8, CreatedAt: 9,
			Annotations: map[string]string{"c": "d", state.RecordAnnotation: "[]"}, Env: []string{"A=B"}, Args: []string{"/bin/true"},
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
	decoded := decodedFields()[whole.ProtoReflect().Descriptor().FullName()]
	f.Fuzz(func(t *testing.T, encoded []byte) {
		var want, got api.SynchronizeRequest
		if proto.Unmarshal(encoded, &want) != nil {
			_, _ = decoded.pick(nil, slices.Clone(encoded))
			return
		}

		err := decoded.decode(&got, func(message any) error { return proto.Unmarshal(slices.Clone(encoded), message.(proto.Message)) })
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
			pod.Annotations, c.Annotations = requests(pod.GetAnnotations()), requests(c.GetAnnotations())
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

// requests returns the annotations that the plugin reads.
func requests(annotations map[string]string) map[string]string {
	var read map[string]string
	for key, value := range annotations {
		for _, prefix := range append(classes.RequestKeyPrefixes(), state.RecordAnnotation, originalsAnnotation) {
			if strings.HasPrefix(key, prefix) {
				if read == nil {
					read = map[string]string{}
				}
				read[key] = value
			}
		}
	}
	return read
}

// TestOnlyTheAnnotationsThatThePluginReadsAreDecoded has a list of its own, so that it notices an
// annotation that is missing in decodedFields.
func TestOnlyTheAnnotationsThatThePluginReadsAreDecoded(t *testing.T) {
	want := map[string]string{}
	for _, key := range []string{
		"qos.noderesource.dev/pod", "container.qos.noderesource.dev/main", "volumes.qos.noderesource.dev/main",
		"allocated.qos.noderesource.dev/test.example:cache::gold", "assigned.qos.noderesource.dev", "originals.qos.noderesource.dev",
		"rdt.resources.kubernetes.io/default", "blockio.resources.kubernetes.io/container.main",
		"rdt.resources.beta.kubernetes.io/pod", "blockio.resources.beta.kubernetes.io/container.main",
		"io.kubernetes.cri.rdt-class", "io.kubernetes.cri.blockio-class",
	} {
		want[key] = "of " + key
	}
	all := maps.Clone(want)
	all["kubectl.kubernetes.io/last-applied-configuration"], all["io.kubernetes.container.hash"] = "{}", "1"

	whole := &api.CreateContainerRequest{Pod: &api.PodSandbox{Annotations: all}, Container: &api.Container{Annotations: all}}
	encoded, err := proto.Marshal(whole)
	must(t, err)
	var got api.CreateContainerRequest
	fields := decodedFields()[whole.ProtoReflect().Descriptor().FullName()]
	must(t, fields.decode(&got, func(message any) error { return proto.Unmarshal(encoded, message.(proto.Message)) }))
	for of, annotations := range map[string]map[string]string{"pod": got.GetPod().GetAnnotations(), "container": got.GetContainer().GetAnnotations()} {
		if diff := cmp.Diff(want, annotations); diff != "" {
			t.Errorf("annotations of the %s (-want +got):\n%s", of, diff)
		}
	}
}

// handled is what the handlers read of a request.
type handled struct {
	Pods       []classes.Holder
	Containers []classes.Holder
	Existing   []state.Existing
	Others     []string
	Update     classes.Spec
	Requested  map[string]string
	Described  []classes.Adjustment
	Adjusted   classes.Adjustment
	Plugins    []string
}

func handledOf(request proto.Message) (h handled) {
	pods, containers := []*api.PodSandbox{}, []*api.Container{}
	if r, ok := request.(interface{ GetPod() *api.PodSandbox }); ok { // for spans
		h.Others = append(h.Others, r.GetPod().GetId(), r.GetPod().GetNamespace(), r.GetPod().GetName(), r.GetPod().GetUid())
	}
	if r, ok := request.(interface{ GetContainer() *api.Container }); ok {
		h.Others = append(h.Others, r.GetContainer().GetId(), r.GetContainer().GetName())
	}

	switch r := request.(type) {
	case *api.SynchronizeRequest:
		pods, containers = r.GetPods(), r.GetContainers()
		h.Others = append(h.Others, fmt.Sprint(r.GetMore()))
	case *api.CreateContainerRequest:
		pods, containers = append(pods, r.GetPod()), append(containers, r.GetContainer())
	case *api.StartContainerRequest:
		pods, containers = append(pods, r.GetPod()), append(containers, r.GetContainer())
	case *api.RunPodSandboxRequest:
		pods = append(pods, r.GetPod())
	case *api.StateChangeEvent:
		pods, containers = append(pods, r.GetPod()), append(containers, r.GetContainer())
		h.Others = append(h.Others, r.GetEvent().String())
	case *api.UpdateContainerRequest:
		h.Update, h.Requested = limitsOf(r.GetLinuxResources()), r.GetLinuxResources().GetUnified()
		h.Described = append(h.Described, described(r.GetContainer()))
	case *api.ValidateContainerAdjustmentRequest:
		h.Adjusted = adjusted(r.GetAdjust())
		for _, p := range r.GetPlugins() {
			h.Plugins = append(h.Plugins, p.GetIndex()+"-"+p.GetName())
		}
	}

	for i, p := range pods {
		h.Pods = append(h.Pods, podOf(p))
		if i < len(containers) {
			c := containers[i]
			h.Containers, h.Existing = append(h.Containers, containerOf(p, c)), append(h.Existing, existingOf(p, c))
			h.Described = append(h.Described, described(c))
			h.Others = append(h.Others, c.GetPodSandboxId(), c.GetState().String(), fmt.Sprint(c.GetCreatedAt()))
		}
	}
	return h
}

// fill sets every field of a message, also of nested messages.
func fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch {
		case field.IsMap():
			value := filled(field.MapValue(), m.NewField(field).Map().NewValue())
			m.Mutable(field).Map().Set(filled(field.MapKey(), protoreflect.Value{}).MapKey(), value)
		case field.IsList():
			list := m.Mutable(field).List()
			list.Append(filled(field, list.NewElement()))
		default:
			m.Set(field, filled(field, m.NewField(field)))
		}
	}
}

func filled(field protoreflect.FieldDescriptor, value protoreflect.Value) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.MessageKind:
		fill(value.Message())
	case protoreflect.StringKind:
		if field.Name() == "key" {
			return protoreflect.ValueOfString(classes.PodKey)
		}
		return protoreflect.ValueOfString("/" + string(field.Name()))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(7)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(7)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(7)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(7)
	}
	return value
}

// TestEveryFieldThatHandlersReadIsDecodedInEachRequest fills requests with all fields. What handlers read of a whole request must be
// what they read if only the listed fields are decoded.
func TestEveryFieldThatHandlersReadIsDecodedInEachRequest(t *testing.T) {
	for name, fields := range decodedFields() {
		t.Run(string(name.Name()), func(t *testing.T) {
			kind, err := protoregistry.GlobalTypes.FindMessageByName(name)
			must(t, err)
			whole, picked := kind.New().Interface(), kind.New().Interface()
			fill(whole.ProtoReflect())
			encoded, err := proto.Marshal(whole)
			must(t, err)
			must(t, fields.decode(picked, func(message any) error { return proto.Unmarshal(encoded, message.(proto.Message)) }))

			if diff := cmp.Diff(handledOf(whole), handledOf(picked)); diff != "" {
				t.Errorf("(-whole request +decoded fields):\n%s", diff)
			}
		})
	}
}
