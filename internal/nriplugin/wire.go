// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"context"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/runtime/protoiface"
	"google.golang.org/protobuf/types/known/emptypb"
)

// fieldNumbers lists the protobuf fields that the plugin reads, by field number. The value of a field lists its nested
// fields in the same way. The value nil means that the plugin reads the whole field.
type fieldNumbers map[protowire.Number]fieldNumbers

// decodedFields returns the fields that session and its handlers read in requests of the runtime. All other fields are
// empty in the handlers, so a field that a handler reads must be listed here. In all of these requests, field 1 has the
// pods and field 2 has the containers.
func decodedFields() fieldNumbers {
	return fieldNumbers{
		1: {1: nil, 2: nil, 3: nil, 4: nil, 6: nil, 7: nil, 8: {3: nil}, 9: nil},
		2: {
			1: nil, 2: nil, 3: nil, 4: nil, 6: nil, 9: {1: nil, 3: nil},
			11: {2: {1: nil, 2: nil, 3: nil, 4: nil}, 3: {6: nil}, 5: nil, 12: {1: nil}},
			12: nil, 14: nil,
		},
		3: nil, // in a synchronization: whether more messages follow; in a validation: the adjustment
		6: nil, // in a validation: the plugins
	}
}

// pick appends to dst those fields of an encoded message that f lists. dst may begin at the address of the message and
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

		nested, listed := f[number]
		field := message[:tag+value]
		message = message[len(field):]
		switch {
		case !listed:
		case nested == nil || kind != protowire.BytesType:
			dst = append(dst, field...)
		default:
			content, _ := protowire.ConsumeBytes(field[tag:])
			picked, err := nested.pick(content[:0], content)
			if err != nil {
				return nil, err
			}
			dst = protowire.AppendBytes(protowire.AppendTag(dst, number, kind), picked)
		}
	}
	return dst, nil
}

// interceptRequest is a ttrpc interceptor that decodes only those fields of pods and containers that the plugin reads.
// The environment variables of a container can exceed 1 MiB. Decoding those of all containers would take most of a hook's
// time, and much memory during a synchronization.
func (s *session) interceptRequest(ctx context.Context, unmarshal ttrpc.Unmarshaler, _ *ttrpc.UnaryServerInfo, method ttrpc.Method) (any, error) {
	return method(ctx, func(request any) error {
		switch request := request.(type) {
		case *api.SynchronizeRequest:
			if err := s.decodes.decode(request, unmarshal); err != nil {
				return err
			}
			s.listing.received(request)
			return nil
		case *api.CreateContainerRequest, *api.StartContainerRequest, *api.StopContainerRequest, *api.RemoveContainerRequest,
			*api.ValidateContainerAdjustmentRequest, *api.RunPodSandboxRequest, *api.StopPodSandboxRequest, *api.RemovePodSandboxRequest:
			message, _ := request.(proto.Message) // every request is a message
			return s.decodes.decode(message, unmarshal)
		}
		return unmarshal(request)
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

// encoded is a protobuf message that is not decoded: unmarshalling only stores the encoded bytes in its field bytes.
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
