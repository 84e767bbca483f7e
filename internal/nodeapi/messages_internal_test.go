// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"testing"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

func TestSourcesAndScopesHaveTheSameNamesInTheNodeAPIAndInPackageClasses(t *testing.T) {
	for number := range qosv1alpha1.Source_name {
		if want := qosv1alpha1.Source(number); sourceOf(classes.Source(want.Name())) != want {
			t.Errorf("source %q becomes %s", want.Name(), sourceOf(classes.Source(want.Name())))
		}
	}
	for _, scope := range []classes.Scope{classes.ContainerScope, classes.PodScope, classes.VolumeScope} {
		if got := scopeOf(scope); got.Name() != string(scope) {
			t.Errorf("scope %q becomes %s", scope, got)
		}
	}
}
