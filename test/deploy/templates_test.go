// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
)

// setWith returns a StatefulSet with claim templates. Each word of the text has the form NAME=SIZE or NAME=SIZE,CLASS.
func setWith(t *testing.T, text string, annotations map[string]string) *appsv1.StatefulSet {
	t.Helper()
	set := &appsv1.StatefulSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", Annotations: maps.Clone(annotations)},
	}
	for word := range strings.FieldsSeq(text) {
		name, values, _ := strings.Cut(word, "=")
		size, class, _ := strings.Cut(values, ",")
		claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
		claim.Spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
		if size != "" {
			claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		}
		if class != "" {
			claim.Spec.VolumeAttributesClassName = &class
		}
		set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates, claim)
	}
	return set
}

// textOf is the reverse of setWith. The annotations come first.
func textOf(set *appsv1.StatefulSet) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(set.Annotations)) {
		words = append(words, key+": "+set.Annotations[key])
	}
	for _, c := range set.Spec.VolumeClaimTemplates {
		word := c.Name + "=" + c.Spec.Resources.Requests.Storage().String()
		if class := c.Spec.VolumeAttributesClassName; class != nil {
			word += "," + *class
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// update returns a StatefulSet after the policy for changed templates, as an API server evaluates it.
func update(t *testing.T, before, after *appsv1.StatefulSet) *appsv1.StatefulSet {
	t.Helper()
	found, _ := policies(t, "deploy/storage-statefulsets-policy")
	p := found[slices.IndexFunc(found, func(p policy) bool { return p.name == "qos-changed-templates" })]
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 35)))
	must(t, err)
	options := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	compiler.CompileAndStoreVariables(p.variables, options, environment.NewExpressions)

	scheme := runtime.NewScheme()
	must(t, appsv1.AddToScheme(scheme))
	kind, resource := after.GroupVersionKind(), appsv1.SchemeGroupVersion.WithResource("statefulsets")
	who := &user.DefaultInfo{Name: "helm"}
	attributes := &admission.VersionedAttributes{
		Attributes:         admission.NewAttributesRecord(after, before, kind, "default", "db", resource, "", admission.Update, nil, false, who),
		VersionedKind:      kind,
		VersionedObject:    admission.NewLazyObject(after),
		VersionedOldObject: admission.NewLazyObject(before),
	}

	matcher := matchconditions.NewMatcher(compiler.CompileCondition(matching(p.conditions), options, environment.NewExpressions), &p.failure, "policy", "mutate", p.name)
	switch match := matcher.Match(t.Context(), attributes, nil, nil); {
	case match.Error != nil:
		t.Fatal(match.Error)
	case !match.Matches:
		return after
	}
	options.HasPatchTypes = true
	patcher := patch.NewJSONPatcher(compiler.CompileMutatingEvaluator(p.mutations[0], options, environment.NewExpressions))
	result, err := patcher.Patch(compiler.CreateContext(t.Context()), patch.Request{
		MatchedResource: resource, VersionedAttributes: attributes, ObjectInterfaces: admission.NewObjectInterfacesFromScheme(scheme),
	}, cel.RuntimeCELCostBudget)
	must(t, err)
	return result.(*appsv1.StatefulSet)
}

// TestChangedTemplatesBecomeAnnotations sends updates of StatefulSets through the policy. The policy writes a larger
// size or another class of a template as an annotation, and restores the template. Other differences stay, so that the
// API server refuses the update. `want` has the annotations, and then the templates.
func TestChangedTemplatesBecomeAnnotations(t *testing.T) {
	const size, class = "storage.qos.noderesource.dev/", "volume-attributes-class.qos.noderesource.dev/"
	some := map[string]string{"a": "b"}
	for name, test := range map[string]struct {
		before, after string
		annotations   map[string]string
		want          string
	}{
		"a larger size":                        {"data=10Gi log=1Gi", "data=20Gi log=1Gi", nil, size + "data: 20Gi data=10Gi log=1Gi"},
		"a size in another unit":               {"data=10Gi", "data=20480Mi", nil, size + "data: 20Gi data=10Gi"},
		"two larger sizes":                     {"data=10Gi log=1Gi", "data=20Gi log=1.5Gi", some, "a: b " + size + "data: 20Gi " + size + "log: 1536Mi data=10Gi log=1Gi"},
		"a larger size replaces an annotation": {"data=10Gi", "data=20Gi", map[string]string{size + "data": "15Gi", "a": "b"}, "a: b " + size + "data: 20Gi data=10Gi"},
		"the first class":                      {"data=10Gi", "data=10Gi,gold", nil, class + "data: gold data=10Gi"},
		"another class":                        {"data=10Gi,silver", "data=10Gi,gold", some, "a: b " + class + "data: gold data=10Gi,silver"},
		"size and class":                       {"data=10Gi,silver log=1Gi", "data=20Gi,gold log=1Gi,gold", nil, size + "data: 20Gi " + class + "data: gold " + class + "log: gold data=10Gi,silver log=1Gi"},
		"an equal size":                        {"data=1Gi", "data=1024Mi", nil, "data=1Gi"},
		"an update without a change keeps the annotation": {"data=10Gi", "data=10Gi", map[string]string{size + "data": "20Gi"}, size + "data: 20Gi data=10Gi"},
		"no templates":                   {"", "", nil, ""},
		"a smaller size":                 {"data=10Gi", "data=5Gi", nil, "data=5Gi"},
		"a size with an exponent":        {"data=1k", "data=1e6", nil, "data=1e6"},
		"no class":                       {"data=10Gi,gold", "data=10Gi", nil, "data=10Gi"},
		"no size":                        {"data=10Gi", "data=", nil, "data=0"},
		"another name":                   {"data=10Gi", "date=20Gi", nil, "date=20Gi"},
		"a new template":                 {"data=10Gi", "data=20Gi log=1Gi", nil, "data=20Gi log=1Gi"},
		"one template less":              {"data=10Gi log=1Gi", "data=20Gi", nil, "data=20Gi"},
		"the first template":             {"", "data=20Gi", nil, "data=20Gi"},
		"a larger and a smaller size":    {"data=10Gi log=2Gi", "data=20Gi log=1Gi", nil, size + "data: 20Gi data=10Gi log=1Gi"},
		"another order of the templates": {"data=10Gi log=1Gi", "log=1Gi data=10Gi", nil, "log=1Gi data=10Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := setWith(t, test.before, nil), setWith(t, test.after, test.annotations)
			if diff := cmp.Diff(test.want, textOf(update(t, before, after))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestOtherChangesOfTemplatesAreStillRefused changes other fields together with the size. The policy restores only the
// size, so that the API server refuses the update.
func TestOtherChangesOfTemplatesAreStillRefused(t *testing.T) {
	before, after := setWith(t, "data=10Gi", nil), setWith(t, "data=20Gi", nil)
	claim := &after.Spec.VolumeClaimTemplates[0]
	claim.Spec.StorageClassName, claim.Labels, claim.Spec.AccessModes = new("other"), map[string]string{"a": "b"}, []corev1.PersistentVolumeAccessMode{"ReadWriteMany"}
	want := claim.DeepCopy()
	want.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("10Gi")
	if diff := cmp.Diff([]corev1.PersistentVolumeClaim{*want}, update(t, before, after).Spec.VolumeClaimTemplates); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAStatefulSetMayHaveManyTemplates changes 40 templates, more than the 32 that a StatefulSetVolumes object may have. The policy still
// restores each template, and writes each new size and class into an annotation.
func TestAStatefulSetMayHaveManyTemplates(t *testing.T) {
	var before, after, want []string
	for i := range 40 {
		name := strings.Repeat("x", 50) + "-" + string(rune('a'+i/26)) + string(rune('a'+i%26))
		before, after = append(before, name+"=10Gi"), append(after, name+"=20Gi,gold")
		want = append(want, name+"=10Gi")
	}
	got := textOf(update(t, setWith(t, strings.Join(before, " "), nil), setWith(t, strings.Join(after, " "), nil)))
	if !strings.HasSuffix(got, strings.Join(want, " ")) || strings.Count(got, ": 20Gi") != 40 || strings.Count(got, ": gold") != 40 {
		t.Errorf("got %s", got)
	}
}
