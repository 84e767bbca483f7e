// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
)

// fill sets each field of a message. Each list gets one item.
func fill(m protoreflect.Message) {
	switch special := m.Interface().(type) {
	case *timestamppb.Timestamp:
		special.Seconds, special.Nanos = 1_000_000, 500
		return
	case *structpb.Struct:
		special.Fields = map[string]*structpb.Value{"kind": structpb.NewStringValue("QOSClassConfig")}
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch {
		case field.IsList():
			fill(m.Mutable(field).List().AppendMutable().Message())
		case field.Message() != nil:
			fill(m.Mutable(field).Message())
		case field.Kind() == protoreflect.StringKind:
			m.Set(field, protoreflect.ValueOfString(field.TextName()))
		case field.Kind() == protoreflect.BoolKind:
			m.Set(field, protoreflect.ValueOfBool(true))
		case field.Kind() == protoreflect.Uint32Kind:
			m.Set(field, protoreflect.ValueOfUint32(uint32(field.Number())))
		default:
			m.Set(field, protoreflect.ValueOfFloat64(float64(field.Number())))
		}
	}
}

// TestAReportHasEachFieldOfItsMessage reads each message into a report, as kubectl does, and converts the report into a message again.
func TestAReportHasEachFieldOfItsMessage(t *testing.T) {
	blame, recommendations := &qosv1alpha1.BlameResponse{}, &qosv1alpha1.RecommendResponse{}
	fill(blame.ProtoReflect())
	fill(recommendations.ProtoReflect())
	for _, test := range []struct {
		want   proto.Message
		report any
	}{
		{blame, &reports.Blame{}},
		{recommendations, &reports.Recommendations{}},
		// a recommendation in which no field is set
		{&qosv1alpha1.RecommendResponse{Recommendations: []*qosv1alpha1.ClassRecommendation{{}}}, &reports.Recommendations{}},
	} {
		data, err := protojson.Marshal(test.want)
		if err == nil {
			err = json.Unmarshal(data, test.report)
		}
		must(t, err)
		got, err := messageOf(test.report, test.want.ProtoReflect().New().Interface())
		if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
}
