// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"testing"

	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
)

func TestEachUserHasALimitOfReportsAndFewLimitsAreKept(t *testing.T) {
	limits := newReadLimits()
	report := func(uid uint32) error {
		ctx := peer.NewContext(context.Background(), &peer.Peer{AuthInfo: process{uid: uid}})
		_, err := limits.allow(ctx, &tap.Info{FullMethodName: "/qos.v1alpha1.NodeQOS/ReportEnforcement"})
		return err
	}

	for report(1) == nil {
		continue
	}
	for uid := range uint32(500) {
		if err := report(1000 + uid); err != nil {
			t.Errorf("after all reports of user 1, user %d gets %v", 1000+uid, err)
		}
	}
	if got := len(limits.reports); got > maxReportingUsers {
		t.Errorf("the limits of %d users are kept, want at most %d", got, maxReportingUsers)
	}
}
