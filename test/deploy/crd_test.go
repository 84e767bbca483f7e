// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

// limitRangeSchema returns the schema of QOSLimitRange.
func limitRangeSchema(t *testing.T) *schema.Structural {
	t.Helper()
	structural, err := schema.NewStructural(schemaOf(t, "deploy/policies/crd.yaml"))
	must(t, err)
	return structural
}

// schemaOf returns the schema of a CRD, after the API server's own checks of the CRD, e.g. of the cost of its rules.
func schemaOf(t *testing.T, path string) *apiextensions.JSONSchemaProps {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	must(t, err)
	var crd apiextensionsv1.CustomResourceDefinition
	must(t, yaml.UnmarshalStrict(data, &crd))
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	var internal apiextensions.CustomResourceDefinition
	must(t, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&crd, &internal, nil))
	internal.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
	must(t, validation.ValidateCustomResourceDefinition(t.Context(), &internal).ToAggregate())
	return internal.Spec.Validation.OpenAPIV3Schema
}

// TestSizesOfVolumesHaveNoExponent checks sizes of StatefulSetVolumes objects against the CRD, which accepts positive numbers of at most 18
// digits. To compare 1e1000000000 with another size takes hours, so the policy for new claims has the same pattern.
func TestSizesOfVolumesHaveNoExponent(t *testing.T) {
	validator, _, err := apivalidation.NewSchemaValidator(schemaOf(t, "deploy/storage-statefulsets/crd.yaml"))
	must(t, err)
	for size, valid := range map[string]bool{
		"100Gi": true, "1.5T": true, "1000": true, `"123456789012345678"`: true, "3k": true,
		"1e1000000000": false, `"1E9"`: false, `"1e3"`: false, `"1234567890123456789"`: false, "-1Gi": false, "+1Gi": false, "1Gi5": false, "100m": false,
	} {
		var object map[string]any
		must(t, yaml.Unmarshal([]byte("spec: {volumeClaimTemplates: [{name: data, storage: "+size+"}]}"), &object))
		if problems := apivalidation.ValidateCustomResource(nil, object, validator); (len(problems) == 0) != valid {
			t.Errorf("size %s: the problems are %v, want it valid: %t", size, problems, valid)
		}
	}

	found, _ := policies(t, "deploy/storage-statefulsets-policy")
	for _, p := range found {
		if !slices.ContainsFunc(p.variables, func(v plugincel.NamedExpressionAccessor) bool {
			return strings.Contains(v.GetExpression(), ".matches(r'"+nodeqosv1alpha1.SizePattern+"')")
		}) {
			t.Errorf("%s does not check sizes", p.name)
		}
	}
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
		// An extended resource has at most 63 characters after the slash. Here these are "b." and the class.
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
