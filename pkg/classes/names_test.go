// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

func TestNamesFollowTheKEP(t *testing.T) {
	long := strings.Repeat("a", 63)
	domain := strings.Repeat("abcdefghi.", 25) + "abc" // 253 characters
	tests := []struct {
		name            string
		resource, class bool // whether a resource, or a class, may have the name
	}{
		{"k8s.io/rdt", true, false},
		{"k8s.io/blockio", true, false},
		{"k8s.io/other", false, false},
		{"vendor.example/xyz-qos", true, false},
		{"v/x", true, false},
		{"rdt", false, true},
		{"Gold_1.x-y", false, true},
		{"vendor.example/Gold_1.x-y", true, false},
		{"", false, false},
		{"/", false, false},
		{"/x", false, false},
		{"x/", false, false},
		{"a/b/c", false, false},
		{".", false, false},
		{"..", false, false},
		{"../x", false, false},
		{"v.example/..", false, false},
		{"-x", false, false},
		{"x-", false, false},
		{"a b", false, false},
		{"a\n", false, false},
		{"ä", false, false},
		{"Vendor.example/x", false, false},
		{"vendor_.example/x", false, false},
		{"vendor..example/x", false, false},
		{long, false, true},
		{long + "a", false, false},
		{"v.example/" + long, true, false},
		{"v.example/" + long + "a", false, false},
		{domain + "/x", true, false},
		{domain + "d/x", false, false},
	}

	for _, test := range tests {
		if err := ValidateResourceName(test.name); (err == nil) != test.resource {
			t.Errorf("the name %q of a resource: the error is %v", test.name, err)
		}
		if err := ValidateClassName(test.name); (err == nil) != test.class {
			t.Errorf("the name %q of a class: the error is %v", test.name, err)
		}
	}
}

func TestExtendedResourcesAreThoseThatKubernetesAllows(t *testing.T) {
	// A ResourceQuota puts "requests." before the name, and the domain must not be longer than 253 characters with it.
	domain := strings.Repeat("abcdefghi.", 24) + "abcd" // 244 characters
	tests := []struct{ resource, class, want, err string }{
		{"k8s.io/rdt", "gold", "qos.noderesource.dev/rdt.gold", ""},
		{"blockio", "high-prio", "qos.noderesource.dev/blockio.high-prio", ""},
		{"vendor.example/xyz-qos", "high", "vendor.example/xyz-qos.high", ""},
		{"qos.noderesource.dev/pod-blockio", "slow", "qos.noderesource.dev/pod-blockio.slow", ""},
		{domain + "/x", "y", domain + "/x.y", ""},
		{domain + "e/x", "y", "", "must not be longer than 244 characters"},
		{"v.example/" + strings.Repeat("x", 61), "y", "v.example/" + strings.Repeat("x", 61) + ".y", ""},
		{"v.example/" + strings.Repeat("x", 62), "y", "", "must not be longer than 63 characters"},
		{"network", "fast", "", "has no domain"},
		{"requests.example/x", "y", "", `begins with "requests."`},
		{"foo.kubernetes.io/x", "y", "", "kubernetes.io is reserved"},
		{"v.example/x", "a/b", "", "must"},
	}

	for _, test := range tests {
		got, err := ExtendedResource(test.resource, test.class)
		switch {
		case got != test.want, (err == nil) != (test.err == ""):
			t.Errorf("class %s of %s: got %q and the error %v, want %q and %q", test.class, test.resource, got, err, test.want, test.err)
		case err != nil && !strings.Contains(err.Error(), test.err):
			t.Errorf("class %s of %s: the error is %v, want %q", test.class, test.resource, err, test.err)
		case err == nil && len(content.IsLabelKey("requests."+got)) > 0:
			t.Errorf("%s is not a valid name in a ResourceQuota", got)
		}
	}
}

func TestUserTextInErrorsIsShortAndOnOneLine(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 1<<20), strings.Repeat("ä\n\x00\x1b[31m", 1000), "\xff\xfe", strings.Repeat("€", 100)} {
		got := quote(text)
		if len(got) > 100 || strings.ContainsAny(got, "\n\x00\x1b") || !utf8.ValidString(got) {
			t.Errorf("%.20q: got %q", text, got)
		}
	}
	if got := quote("größe"); got != `"größe"` {
		t.Errorf("got %s", got)
	}
}

func TestHoldersAndOwnersOfAnyNameAreShortAndPrintable(t *testing.T) {
	name := "\x1b[2J\u009b\n" + strings.Repeat("x", 1<<20)
	for _, text := range []string{
		qos.Subject{PodUID: name}.String(), qos.Subject{PodUID: name, Container: name}.String(),
		Holder{PodNamespace: name, PodName: name, Container: name}.String(),
	} {
		if len(text) > 300 || printable.Text(text, len(text)) != text {
			t.Errorf("the text is long or unprintable: %d bytes, %.300q", len(text), text)
		}
	}
}

func TestASubjectIsDescribedByItsContainerAndPod(t *testing.T) {
	if got, want := (qos.Subject{PodUID: "1-2", Container: "main"}).String(), `container "main" of pod 1-2`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestTheNameOfADeviceClassBeginsWithItsResource: the name is in lower case, with "-" for "_". If this changes the name,
// a digest is added. If the result is not a DNS subdomain, there is an error.
func TestTheNameOfADeviceClassBeginsWithItsResource(t *testing.T) {
	for extended, want := range map[string]string{
		"qos.noderesource.dev/rdt.gold":       "rdt.gold",
		"qos.noderesource.dev/blockio.Fast_1": "blockio.fast-1-f947021c",
		"vendor.example/net.fast":             "vendor.example.net.fast",
		"vendor.example/Big_net.a--b":         "vendor.example.big-net.a--b-a522e90d",
		"qos.noderesource.dev/rdt.a._b":       "",
		"qos.noderesource.dev/rdt.a..b":       "",
	} {
		if got, err := DeviceClass(extended); got != want || (err == nil) != (want != "") {
			t.Errorf("the DeviceClass of %s is %q, %v, want %q", extended, got, err, want)
		}
	}
}
