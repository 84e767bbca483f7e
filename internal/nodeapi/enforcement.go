// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"os"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
)

// ReportEnforcement implements NodeQOS.ReportEnforcement. Root and the plugin's own user may report on all resources, as they may use the
// whole API.
func (s *service) ReportEnforcement(
	ctx context.Context, r *qosv1alpha1.ReportEnforcementRequest,
) (*qosv1alpha1.ReportEnforcementResponse, error) {
	report := state.EnforcementReport{Resource: r.GetName(), Class: r.GetClass(), Problem: r.GetProblem()}
	if client, known := clientOf(ctx); known {
		report.User, report.Privileged = client.uid, client.uid == 0 || client.uid == uint32(os.Geteuid())
	}

	owner := qos.Subject{PodUID: r.GetPodUid(), Container: r.GetContainer()}
	if err := s.node.ReportEnforcement(owner, report); err != nil {
		return nil, statusError(err)
	}
	return &qosv1alpha1.ReportEnforcementResponse{}, nil
}
