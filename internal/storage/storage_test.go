// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"os"
	"strings"
	"testing"
)

func TestTwoReplicasOnAHostHaveTheirOwnIdentities(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	first, err := newIdentity()
	if err != nil {
		t.Fatal(err)
	}
	second, err := newIdentity()
	if err != nil {
		t.Fatal(err)
	}
	if first == second || !strings.HasPrefix(first, host+"_") {
		t.Errorf("the identities are %s and %s", first, second)
	}
}
