// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"path/filepath"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
)

func TestTheExampleClassFilesAreValidOffline(t *testing.T) {
	files, err := filepath.Glob("../../config/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no class files: %v", err)
	}
	for _, file := range files {
		if source := config.Read(file, config.OfflineKinds(), config.HostFiles("/")); source.Err != nil {
			t.Errorf("%v", source.Err)
		}
	}
}
