// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"context"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/runtime/protoiface"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/internal/stack"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// fieldNumbers lists the protobuf fields that the plugin reads, by field number.
type fieldNumbers map[protowire.Number]decodedField

// decodedField selects the part of a field that the plugin reads: some of the nested fields, or those texts that begin with one of the
// prefixes. Of a map, it selects entries by their keys. If both are empty, the plugin reads the whole field.
type decodedField struct {
	nested   fieldNumbers
	isMap    bool
	prefixes []string
}

// reads reports whether the plugin reads a text, or an entry of a map.
func (d decodedField) reads(content []byte) bool {
	if d.isMap {
		content = keyOf(content)
	}
	return slices.ContainsFunc(d.prefixes, func(prefix string) bool {
		return len(content) >= len(prefix) && string(content[:len(prefix)]) == prefix
	})
}

// keyOf returns the key of an encoded entry of a map.
func keyOf(entry []byte) (key []byte) {
	for len(entry) > 0 {
		number, kind, length := protowire.ConsumeField(entry)
		if length < 0 {
			return nil
		}
		if number == 1 && kind == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(entry)
			key, _ = protowire.ConsumeBytes(entry[tag:])
		}
		entry = entry[length:]
	}
	return key
}

// decodedFields maps each request of the runtime to the fields that session and its handlers read. All other fields are empty in the
// handlers, so a field that a handler reads must be listed here.
func decodedFields() map[protoreflect.FullName]fieldNumbers {
	const podNames, containerNames = "id name uid namespace", "id name"
	var (
		annotations = "annotations=" + strings.Join(append(classes.RequestKeyPrefixes(), state.RecordAnnotation, originalsAnnotation), "|")

		pod       = podNames + " labels " + annotations + " runtime_handler linux.cgroup_parent pid"
		container = containerNames + " pod_sandbox_id state " + annotations + " CDI_devices mounts.destination mounts.source pid rlimits created_at " +
			"linux.devices.path linux.devices.type linux.devices.major linux.devices.minor linux.cgroups_path linux.oom_score_adj " +
			"linux.io_priority linux.sysctl linux.scheduler linux.rdt.clos_id linux.resources.unified " +
			"linux.resources.memory.limit linux.resources.cpu.quota linux.resources.cpu.period linux.resources.cpu.shares image.digest"
	)
	decoded := map[protoreflect.FullName]fieldNumbers{}
	// read records that the handler of a request reads the fields of each message.
	read := func(request proto.Message, fieldsOf map[string]string) {
		descriptor, fields := request.ProtoReflect().Descriptor(), fieldNumbers{}
		for message, paths := range fieldsOf {
			for path := range strings.FieldsSeq(paths) {
				fields.add(descriptor, strings.TrimPrefix(message+"."+path, "."))
			}
		}
		decoded[descriptor.FullName()] = fields
	}

	read(&api.SynchronizeRequest{}, map[string]string{"pods": pod, "containers": container, "": "more"})
	read(&api.CreateContainerRequest{}, map[string]string{"pod": pod, "container": container + " env=" + classes.CDIVariable})
	read(&api.StartContainerRequest{}, map[string]string{"pod": pod, "container": container})
	read(&api.UpdateContainerRequest{}, map[string]string{"pod": podNames, "container": container, "": "linux_resources"})
	read(&api.ValidateContainerAdjustmentRequest{}, map[string]string{"pod": podNames, "container": containerNames, "": "adjust plugins"})
	for _, request := range []proto.Message{&api.StopContainerRequest{}, &api.RemoveContainerRequest{}, &api.PostUpdateContainerRequest{}} {
		read(request, map[string]string{"pod": podNames, "container": containerNames})
	}
	read(&api.RunPodSandboxRequest{}, map[string]string{"pod": pod})
	for _, request := range []proto.Message{&api.StopPodSandboxRequest{}, &api.RemovePodSandboxRequest{}} {
		read(request, map[string]string{"pod": podNames})
	}
	// Runtimes with an NRI before 0.12 send this for starts, ends and pods.
	read(&api.StateChangeEvent{}, map[string]string{"pod": pod, "container": container, "": "event"})
	return decoded
}

// add adds the field with a path, e.g. "linux.resources.unified". With a path like "env=A|B", the plugin reads only those texts or map
// entries of the field that begin with A or B. If NRI has no such field, add panics, and every test fails.
func (f fieldNumbers) add(message protoreflect.MessageDescriptor, path string) {
	path, prefixes, _ := strings.Cut(path, "=")
	names := strings.Split(path, ".")
	field := message.Fields().ByName(protoreflect.Name(names[0]))
	for _, name := range names[1:] {
		if f[field.Number()].nested == nil {
			f[field.Number()] = decodedField{nested: fieldNumbers{}}
		}
		f = f[field.Number()].nested
		field = field.Message().Fields().ByName(protoreflect.Name(name))
	}
	f[field.Number()] = decodedField{isMap: field.IsMap(), prefixes: strings.Split(prefixes, "|")}
}

// pick appends to `dst` those fields of an encoded message that `f` lists. `dst` may begin at the address of the message and
// overwrite it, because pick never appends more bytes than it has read.
func (f fieldNumbers) pick(dst, message []byte) ([]byte, error) {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil, protowire.ParseError(tag)
		}
		value := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if value < 0 {
			return nil, protowire.ParseError(value)
		}

		read, listed := f[number]
		field := message[:tag+value]
		message = message[len(field):]
		content, _ := protowire.ConsumeBytes(field[tag:]) // nil if the field has another type
		switch {
		case !listed, read.nested == nil && !read.reads(content):
		case read.nested == nil || kind != protowire.BytesType:
			dst = append(dst, field...)
		default:
			picked, err := read.nested.pick(content[:0], content)
			if err != nil {
				return nil, err
			}
			dst = protowire.AppendBytes(protowire.AppendTag(dst, number, kind), picked)
		}
	}
	return dst, nil
}

// interceptRequest is a ttrpc interceptor. It counts the hooks that are under way, and decodes only those fields of pods and containers
// that the plugin reads. The environment of a container can exceed 1 MiB. Decoding the environments of all containers would take most of a
// hook's time, and much memory during a synchronization.
func (s *session) interceptRequest(ctx context.Context, unmarshal ttrpc.Unmarshaler, _ *ttrpc.UnaryServerInfo, method ttrpc.Method) (any, error) {
	if err := s.unanswered.begin(ctx); err != nil {
		return nil, err
	}
	stack.Grow()
	return method(ctx, func(request any) error {
		message, ok := request.(proto.Message)
		if !ok {
			return unmarshal(request)
		}
		fields, listed := s.decodes[message.ProtoReflect().Descriptor().FullName()]
		if !listed {
			return unmarshal(request)
		}

		err := fields.decode(message, unmarshal)
		if list, ok := request.(*api.SynchronizeRequest); ok && err == nil {
			s.listing.received(list)
			for _, p := range list.GetPods() { // the stub keeps all messages of the list until the last one has arrived
				p.Labels = labelsOf(p)
			}
		}
		return err
	})
}

func (f fieldNumbers) decode(request proto.Message, unmarshal ttrpc.Unmarshaler) error {
	message := &encoded{Message: (&emptypb.Empty{}).ProtoReflect()}
	if err := unmarshal(message); err != nil {
		return err
	}
	picked, err := f.pick(message.bytes[:0], message.bytes)
	if err != nil {
		return err
	}
	return proto.Unmarshal(picked, request)
}

// encoded is a protobuf message that is not decoded: unmarshalling only stores the encoded bytes in its field `bytes`.
type encoded struct {
	protoreflect.Message
	bytes []byte
}

func (e *encoded) ProtoReflect() protoreflect.Message { return e }

func (e *encoded) ProtoMethods() *protoiface.Methods {
	return &protoiface.Methods{Unmarshal: func(in protoiface.UnmarshalInput) (protoiface.UnmarshalOutput, error) {
		e.bytes = in.Buf
		return protoiface.UnmarshalOutput{Flags: protoiface.UnmarshalInitialized}, nil
	}}
}
