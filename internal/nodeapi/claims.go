// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"path"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/node/claims"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// SetVolumeClaims implements NodeQOS.SetVolumeClaims.
func (s *service) SetVolumeClaims(ctx context.Context, r *qosv1alpha1.SetVolumeClaimsRequest) (*qosv1alpha1.SetVolumeClaimsResponse, error) {
	claimed, err := claimsOf(r)
	if err != nil {
		return nil, err
	}
	if err := s.node.SetClaims(ctx, claimed); err != nil {
		return nil, statusError(err)
	}
	return &qosv1alpha1.SetVolumeClaimsResponse{}, nil
}

// claimsOf checks whether the claims are well-formed, and returns them.
func claimsOf(r *qosv1alpha1.SetVolumeClaimsRequest) (claimed claims.Claims, _ error) {
	claimed.Limits = map[string]qos.VolumeLimits{}
	for _, class := range r.GetClasses() {
		if _, twice := claimed.Limits[class.GetName()]; twice {
			return claimed, status.Errorf(codes.InvalidArgument, "class %q is named twice", class.GetName())
		}
		claimed.Limits[class.GetName()] = class.Limits()
	}

	seen := map[qos.Subject]bool{}
	for _, v := range r.GetVolumes() {
		owner := qos.Subject{PodUID: v.GetPodUid(), Container: v.GetContainer(), Volume: path.Clean(v.GetPath())}
		switch {
		case owner.PodUID == "" || owner.Container == "" || !path.IsAbs(owner.Volume):
			return claimed, status.Errorf(codes.InvalidArgument, "a volume of claim %q needs pod_uid, container, and an absolute path", v.GetClaim())
		case seen[owner]:
			return claimed, status.Errorf(codes.InvalidArgument, "%s is named twice", owner)
		}
		seen[owner] = true
		claimed.Volumes = append(claimed.Volumes, classes.ClaimedVolume{Subject: owner, Claim: v.GetClaim(), Class: v.GetClass()})
	}
	return claimed, nil
}
