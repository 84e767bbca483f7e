// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"
	"testing/synctest"
)

// TestAContainerThatWaitsStandsBeforeOneThatDoesNot blames a pod with two containers. The first one is idle.
func TestAContainerThatWaitsStandsBeforeOneThatDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlamed(t, blamedFiles)
		p, idle := pod("db", nil), container("c-a")
		idle.Container, idle.PID = "idle", 1
		p.PodCgroupsPath = "/kubepods/poduid-db"
		idle.CgroupsPath = p.PodCgroupsPath + "/" + idle.ID
		b.host.Cgroups().AddCgroup(idle.CgroupsPath)
		if _, err := b.run(t, p, idle); err != nil {
			t.Fatal(err)
		}

		db := b.runs(t, "db", "blockio=slow")
		b.records(t, 10, map[string]uint64{db: 2})
		// The container main is at the limit of class slow, 10 MB/s, and waits.
		b.records(t, 5, map[string]uint64{db: 10}, db)
		b.records(t, 5, map[string]uint64{db: 2})
		got, err := b.Blame(t.Context(), blamedPod("ns", "db", "", ""))
		if err != nil || len(got.Sufferers) != 2 || len(got.Sufferers[0].Findings) != 1 || got.Sufferers[0].Name != "main" || got.Sufferers[1].Name != "idle" {
			t.Errorf("found %+v, error %v", got.Sufferers, err)
		}
	})
}
