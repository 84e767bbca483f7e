// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// kinds returns the kinds of resources that class files can configure.
func kinds() ([]classes.Kind, error) { return config.OfflineKinds(), nil }
