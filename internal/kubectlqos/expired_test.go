// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// reportedAt sets the times of the last reports of nodes. The arguments are pairs of a node and a time.
func (r *rig) reportedAt(t *testing.T, nodes ...string) {
	t.Helper()
	for i := 0; i < len(nodes); i += 2 {
		r.updateStatus(t, nodes[i], func(status map[string]any) { status["lastHeartbeatTime"] = nodes[i+1] })
	}
}

// The time of the rig is 13:00.
const (
	tenMinutesAgo    = "2026-05-01T12:50:00Z"
	elevenMinutesAgo = "2026-05-01T12:49:00Z"
	daysAgo          = "2026-04-28T12:00:00Z"
)

// TestANodeWhoseLastReportIsOldIsUnknown: reports are valid for ten minutes. The age of an older one is rounded down to ten
// minutes, hours or days.
func TestANodeWhoseLastReportIsOldIsUnknown(t *testing.T) {
	for _, c := range []struct{ last, want string }{
		{tenMinutesAgo, "n1 | True | k8s.io/rdt | gold (0/2) | silver (0/1) | bronze* (0/inf) | old (0/0, draining)"},
		{elevenMinutesAgo, "n1 | Unknown (last report 10m ago) | k8s.io/rdt | gold (0/2) | silver (0/1) | bronze* (0/inf) | old (0/0, draining)"},
		{daysAgo, "n1 | Unknown (last report 3d ago) | k8s.io/rdt | gold (0/2) | silver (0/1) | bronze* (0/inf) | old (0/0, draining)"},
	} {
		r := newRig(t, "plain.yaml")
		r.reportedAt(t, "n1", c.last)
		if got := bare(r.run(t, "nodes").Out); got != c.want {
			t.Errorf("last report at %s:\n got %s\nwant %s", c.last, got, c.want)
		}
	}
}

func TestTopCountsNoFreeSlotsOfNodesWhoseNumbersAreOutdated(t *testing.T) {
	r := newRig(t, "nodes.yaml")
	// A report is valid for ten minutes, so only that of node-1 is too old. The plugin of node-2 is not ready.
	r.reportedAt(t, "node-1", elevenMinutesAgo, "node-2", tenMinutesAgo)
	wantAnswer(t, answer{Out: `
RESOURCE                         CLASS    NODES   IN-USE   CAPACITY   FREE   HELD
k8s.io/rdt                       gold     2       5        3          0      LimitNotHeld (1 of 2 nodes)
k8s.io/rdt                       silver   1       1        4          0      -
k8s.io/rdt                       bronze   2       2        inf        0      NeverReached
k8s.io/rdt                       old      0       1        0          0      -
qos.noderesource.dev/volume-io   silver   1       1        8          0      -
vendor.example/fixed             a        1       0        inf        0      -
vendor.example/network           fast     1       1        2          0      -
vendor.example/network           slow     1       0        inf        0      -
`, Errors: `
Note: the numbers of node-2 are outdated, because qos-nri-plugin is not ready
Note: the numbers of node-1 are outdated, because qos-kubelet-shim does not report any more
`}, r.run(t, "top"))
}

func TestAWatchShowsThatANodeDoesNotReportAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "plain.yaml")
		r.clock = time.Now
		r.reportedAt(t, "n1", time.Now().Format(time.RFC3339))
		out, _ := r.watching(t, []string{"nodes", "-w"}, func(out, _ *watched) {
			out.await(t, "n1     True ")
			// A report is valid for ten minutes. Its age is rounded down to ten minutes, so the row does not change each minute.
			time.Sleep(15 * time.Minute) //nolint:forbidigo // the clock of synctest advances at once
			out.await(t, "n1     Unknown (last report 10m ago) ")
		})
		if rows := strings.Count(out, "n1  "); rows != 2 {
			t.Errorf("%d rows, want 2:\n%s", rows, out)
		}
	})
}
