// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/claims"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/volumeio"
	"github.com/qos-nri/qos-nri-plugin/test/apitest"
)

// claimed is a node that checks the classes of claims, and keeps the claims.
type claimed struct {
	*apitest.Node
	claims claims.Claims
}

func (c *claimed) SetClaims(_ context.Context, claimed claims.Claims) error {
	if _, err := claimed.Resource([]classes.Kind{volumeio.Kind(ioapply.New(ioapply.Options{}))}); err != nil {
		return err
	}
	c.claims = claimed
	return nil
}

func TestClaimsReachTheNode(t *testing.T) {
	n := &claimed{Node: apitest.NewNode()}
	_, client := serve(t, n)
	request := &qosv1alpha1.SetVolumeClaimsRequest{
		Classes: []*qosv1alpha1.VolumeClass{{Name: "gold", MaxReadBps: 3, MaxWriteBps: 4, MaxReadIops: 5, MaxWriteIops: 6}, {Name: "silver", MaxReadIops: 2}},
		Volumes: []*qosv1alpha1.ClaimedVolume{{PodUid: "u", Container: "main", Path: "/data/", Claim: "db/data-0", Class: "gold"}},
	}

	if _, err := client.SetVolumeClaims(t.Context(), request); err != nil {
		t.Fatal(err)
	}

	want := claims.Claims{
		Limits: map[string]qos.VolumeLimits{
			"gold": {MaxReadBps: 3, MaxWriteBps: 4, MaxReadIops: 5, MaxWriteIops: 6}, "silver": {MaxReadIops: 2},
		},
		Volumes: []classes.ClaimedVolume{{Subject: qos.Subject{PodUID: "u", Container: "main", Volume: "/data"}, Claim: "db/data-0", Class: "gold"}},
	}

	if diff := cmp.Diff(want, n.claims); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}

func TestInvalidClaimsAreInvalidArguments(t *testing.T) {
	volume := func(uid, container, path string) *qosv1alpha1.ClaimedVolume {
		return &qosv1alpha1.ClaimedVolume{PodUid: uid, Container: container, Path: path, Claim: "db/data-0", Class: "gold"}
	}

	type request = qosv1alpha1.SetVolumeClaimsRequest
	_, client := serve(t, node.New(node.Options{Kinds: []classes.Kind{volumeio.Kind(ioapply.New(ioapply.Options{}))}, Log: slog.New(slog.DiscardHandler)}))
	for _, test := range []struct {
		name    string
		request *request
		want    string
	}{
		{"a class twice", &request{Classes: []*qosv1alpha1.VolumeClass{{Name: "gold"}, {Name: "gold"}}}, `class "gold" is named twice`},
		{"a volume twice", &request{Volumes: []*qosv1alpha1.ClaimedVolume{volume("u", "main", "/data"), volume("u", "main", "/data/")}}, "is named twice"},
		{"no pod", &request{Volumes: []*qosv1alpha1.ClaimedVolume{volume("", "main", "/data")}}, `a volume of claim "db/data-0" needs pod_uid`},
		{"no container", &request{Volumes: []*qosv1alpha1.ClaimedVolume{volume("u", "", "/data")}}, "needs pod_uid, container"},
		{"no absolute path", &request{Volumes: []*qosv1alpha1.ClaimedVolume{volume("u", "main", "data")}}, "an absolute path"},
		{"an invalid class", &request{Classes: []*qosv1alpha1.VolumeClass{{Name: "a b", MaxReadBps: 2}}}, `NodeQOSResources: "a b" cannot be the name of a class`},
		{"a limit that is too small", &request{Classes: []*qosv1alpha1.VolumeClass{{Name: "gold", MaxWriteIops: 1}}},
			`NodeQOSResources: class "gold": maxWriteIops: "1" is too small; the minimum is 2`},
		// a value above the largest int64 counts as the largest int64
		{"a limit that is too large", &request{Classes: []*qosv1alpha1.VolumeClass{{Name: "gold", MaxReadBps: 1 << 63}}},
			`NodeQOSResources: class "gold": maxReadBps: "9223372036854775807" is too large; the maximum is 9223372036854775806`},
		{"no limit", &request{Classes: []*qosv1alpha1.VolumeClass{{Name: "gold"}}}, `NodeQOSResources: class "gold": sets no limit`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := client.SetVolumeClaims(t.Context(), test.request)
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %s", err, test.want)
			}
		})
	}
}
