// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// limitRangeSchema returns the schema of QOSLimitRange, after the API server's own checks of the CRD, e.g. of the cost of its rules.
func limitRangeSchema(t *testing.T) *schema.Structural {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "deploy/policies/crd.yaml"))
	must(t, err)
	var crd apiextensionsv1.CustomResourceDefinition
	must(t, yaml.UnmarshalStrict(data, &crd))
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	var internal apiextensions.CustomResourceDefinition
	must(t, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&crd, &internal, nil))
	internal.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
	must(t, validation.ValidateCustomResourceDefinition(t.Context(), &internal).ToAggregate())

	structural, err := schema.NewStructural(internal.Spec.Validation.OpenAPIV3Schema)
	must(t, err)
	return structural
}

// TestLimitRangesAreChecked evaluates the rules of the CRD for QOSLimitRanges.
func TestLimitRangesAreChecked(t *testing.T) {
	validator := cel.NewValidator(limitRangeSchema(t), true, celconfig.PerCallLimit)
	for item, want := range map[string]string{
		"{name: rdt, default: gold}":                                     "",
		"{name: rdt, max: [{name: gold, capacity: 1}]}":                  "",
		"{name: rdt, default: bronze, max: [{name: gold, capacity: 0}]}": "",
		"{name: rdt}":                "write default or max",
		"{name: net, default: fast}": "put a domain before it",
		"{name: a/b, default: " + strings.Repeat("x", 61) + "}": "",
		"{name: a/b, default: " + strings.Repeat("x", 62) + "}": "too long",
	} {
		var object map[string]any
		must(t, yaml.Unmarshal([]byte("spec: {limits: [{type: Container, qosResources: ["+item+"]}]}"), &object))
		problems, _ := validator.Validate(t.Context(), nil, limitRangeSchema(t), object, nil, celconfig.RuntimeCELCostBudget)
		got := ""
		for _, problem := range problems {
			got += problem.Error()
		}
		if !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", item, got, want)
		}
	}
}
