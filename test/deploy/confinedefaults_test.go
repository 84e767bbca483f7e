// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
)

// TestDefaultsMayOnlySetTheClassOfAClaimThatHasNone sends writes as qos-storage defaults, which can patch all claims of the cluster.
func TestDefaultsMayOnlySetTheClassOfAClaimThatHasNone(t *testing.T) {
	const (
		otherField = "qos-storage defaults may change only the VolumeAttributesClass of a claim that has none"
		metadata   = "qos-storage defaults may not change labels, annotations, finalizers or owners of a claim"
		noPatch    = "qos-storage defaults may not create claims or write their status"
	)
	confinement := newConfinement(t, renderAt(t, "deploy/storage-defaults"))
	set := func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("gold") }
	status, created, chosen, empty := claimPatch(set), claimPatch(set), claimPatch(set), claimPatch(set)
	status.subresource, created.before = "status", runtime.Object(nil)
	chosen.before, empty.before = withClass(t, chosen.before, "silver"), withClass(t, empty.before, "")

	confinement.confines(t, "qos-storage-defaults", map[string]write{
		"the first class":           {claimPatch(set), nil},
		"a class in place of none":  {empty, nil},
		"a class that a user chose": {chosen, []string{otherField}},
		"the size": {claimPatch(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("20Gi")
		}), []string{otherField}},
		"the volume":          {claimPatch(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "theirs" }), []string{otherField}},
		"a new field":         {claimPatch(func(c *corev1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} }), []string{otherField}},
		"a label":             {claimPatch(func(c *corev1.PersistentVolumeClaim) { c.Labels["app"] = "theirs" }), []string{metadata}},
		"no finalizer":        {claimPatch(func(c *corev1.PersistentVolumeClaim) { c.Finalizers = nil }), []string{metadata}},
		"the status":          {status, []string{noPatch}},
		"a claim that is new": {created, []string{noPatch}},
	})
}

func withClass(t *testing.T, object runtime.Object, class string) runtime.Object {
	t.Helper()
	claim, ok := object.DeepCopyObject().(*corev1.PersistentVolumeClaim)
	if !ok {
		t.Fatalf("a %T is no claim", object)
	}
	claim.Spec.VolumeAttributesClassName = &class
	return claim
}

// TestALimitRangeBoundsWhatClaimsRequest sends new claims, in a namespace whose LimitRange has the annotations of the cases.
func TestALimitRangeBoundsWhatClaimsRequest(t *testing.T) {
	const (
		mistake = "the bounds of claims in a LimitRange of the namespace have a mistake"
		odd     = "write the requests of iops and throughput without exponents and fractions"
		below   = "a LimitRange of the namespace does not allow so small requests"
		above   = "a LimitRange of the namespace does not allow so large requests"
	)
	confinement := confinementNamed(t, "deploy/storage-requests-policy", "qos-bounds-of-claim-requests")
	for _, test := range []struct{ name, minimum, maximum, iops, want string }{
		{"at the maximum", "iops=100", "iops=1k, throughput=1Gi", "1000", ""},
		{"above the maximum", "iops=100", "iops=1k", "1001", above},
		{"below the minimum", "iops=100", "", "99", below},
		{"a bound of throughput does not apply to iops", "throughput=100", "", "1", ""},
		{"no bounds", "", "", "1M", ""},
		{"a mistake", "iops=1e3", "", "500", mistake},
		{"an unknown name", "", "iopz=5", "500", mistake},
		{"a fraction", "", "iops=1k", "500m", odd},
		{"an exponent", "", "iops=1M", "1e3", odd},
		{"no request of I/O, in spite of a mistake", "iops", "", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			confinement.params = &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "io", Annotations: map[string]string{
				"qos.noderesource.dev/min-claim-requests": test.minimum, "qos.noderesource.dev/max-claim-requests": test.maximum,
			}}}
			created := claimPatch(func(c *corev1.PersistentVolumeClaim) {
				if test.iops != "" {
					c.Spec.Resources.Requests["iops"] = resource.MustParse(test.iops)
				}
			})
			created.before = nil
			var want []string
			if test.want != "" {
				want = []string{test.want}
			}
			if got := confinement.refusals(t, &user.DefaultInfo{Name: "alice"}, created); !slices.Equal(got, want) {
				t.Errorf("refusals are %q, want %q", got, want)
			}
		})
	}
}

// confinementNamed returns one of the policies of a directory.
func confinementNamed(t *testing.T, dir, name string) *confinement {
	t.Helper()
	for _, p := range renderAt(t, dir).policies {
		if p.Name == name {
			return confinementOf(t, p)
		}
	}
	t.Fatalf("%s has no policy %s", dir, name)
	return nil
}

// TestALimitRangeWithAMistakeIsRefused: "min=iops=100" stands for the annotation qos.noderesource.dev/min-claim-requests
// with the value iops=100.
func TestALimitRangeWithAMistakeIsRefused(t *testing.T) {
	confinement := confinementNamed(t, "deploy/storage-requests-policy", "qos-claim-requests-of-limit-ranges")
	for annotations, accepted := range map[string]bool{
		"min=iops=100":                         true,
		"max=iops=1k, throughput=100Mi,":       true,
		"default=":                             true,
		"default=iops=250,throughput=25Mi":     true,
		"min=iops=1e3":                         false,
		"max=iopz=5":                           false,
		"default=iops":                         false,
		"default=iops=250;throughput=25Mi":     false,
		"default=iops=250,throughput=0.5Gi":    false,
		"default=iops=250, throughput = 25Mi ": false,
	} {
		key, value, _ := strings.Cut(annotations, "=")
		after := &corev1.LimitRange{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "LimitRange"}, ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "io", Annotations: map[string]string{"qos.noderesource.dev/" + key + "-claim-requests": value},
		}}
		got := confinement.refusals(t, &user.DefaultInfo{Name: "admin"}, request{"limitranges", "", nil, after})
		if (len(got) == 0) != accepted {
			t.Errorf("%s: the refusals are %q, want it accepted: %t", annotations, got, accepted)
		}
	}
}
