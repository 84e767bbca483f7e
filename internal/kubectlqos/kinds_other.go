// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package kubectlqos

import (
	"fmt"
	"runtime"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// kinds returns an error, because the libraries that read the sections of class files do not compile for this system.
func kinds() ([]classes.Kind, error) {
	return nil, fmt.Errorf("class files cannot be read on %s; run kubectl qos on Linux, or qos-nri-plugin check on a node", runtime.GOOS)
}
