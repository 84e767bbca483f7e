// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const podResource = "qos.noderesource.dev/pod-blockio"

func twoClasses() []Class { return []Class{{Name: "gold", Capacity: 2}, {Name: "bronze"}} }

// testCatalog has resources of both scopes, with and without a default, and an unavailable one.
func testCatalog() *Catalog {
	return NewCatalog([]Offer{
		{Resource: Resource{Name: RDTResource, Scope: ContainerScope, DefaultClass: "bronze", Classes: twoClasses()}},
		{Resource: Resource{Name: BlockIOResource, Scope: ContainerScope, Classes: twoClasses()}},
		{Resource: Resource{Name: podResource, Scope: PodScope, Classes: twoClasses()}},
		{
			Resource:    Resource{Name: "v.example/gone", Scope: ContainerScope, DefaultClass: "bronze", Classes: twoClasses()},
			Unavailable: &Unavailable{Reason: "NoDriver", Message: "the driver is not loaded; load it"},
		},
	})
}

type notes = map[string]string

func resolveMain(c *Catalog, pod, container notes) ([]Assignment, error) {
	return c.Resolve(Holder{
		PodNamespace: "default", PodName: "web", PodUID: "u", Container: "main", PodAnnotations: pod, ContainerAnnotations: container,
	})
}

const (
	ownKey       = "container.qos.noderesource.dev/main"
	allocatedKey = "allocated.qos.noderesource.dev/rdt"
	criKey       = "io.kubernetes.cri.rdt-class"
	kepKey       = "rdt.resources.kubernetes.io/container.main"
	betaKey      = "rdt.resources.beta.kubernetes.io/container.main"
	podKey       = "qos.noderesource.dev/pod"
	kepPodKey    = "rdt.resources.kubernetes.io/default"
	betaPodKey   = "rdt.resources.beta.kubernetes.io/pod"
)

type annotationLevel struct {
	key         string
	ofContainer bool // the annotation is one of the container, not of the pod
	pair        bool // the value is resource=class, not only the class
	source      Source
}

// precedence has an annotation for each level, the highest first.
var precedence = []annotationLevel{
	{ownKey, false, true, SourceContainer},
	{allocatedKey, true, true, SourceAllocated},
	{criKey, true, false, SourceContainer},
	{kepKey, false, false, SourceContainer},
	{betaKey, false, false, SourceContainer},
	{podKey, false, true, SourcePod},
	{kepPodKey, false, false, SourcePod},
	{betaPodKey, false, false, SourcePod},
}

func TestHigherLevelsOverrideLowerOnes(t *testing.T) {
	for i, high := range precedence {
		for _, low := range precedence[i+1:] {
			for _, class := range []string{"gold", ""} {
				t.Run(high.key+" with class "+quote(class)+" over "+low.key, func(t *testing.T) {
					request := map[bool]notes{false: {}, true: {}} // by annotationLevel.ofContainer
					for _, r := range []struct {
						annotationLevel
						class string
					}{{high, class}, {low, "bronze"}} {
						value := r.class
						if r.pair {
							value = "rdt=" + value
						}
						request[r.ofContainer][r.key] = value
					}
					got, err := resolveMain(testCatalog(), request[false], request[true])
					// Only ownKey, kepKey and betaKey are requests for this container, which must agree with its allocation.
					// A request for the whole pod, or of the runtime (criKey), is only overridden.
					if contradicts := high.key == ownKey && low.key == allocatedKey ||
						high.key == allocatedKey && (low.key == kepKey || low.key == betaKey); contradicts {
						if !errors.Is(err, ErrContradiction) {
							t.Errorf("got %v, %v", got, err)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					if want := (Assignment{RDTResource, class, high.source, high.key}); got[0] != want {
						t.Errorf("got %+v, want %+v", got[0], want)
					}
				})
			}
		}
	}
}

func TestResolveOfContainers(t *testing.T) {
	bronzeRDT := Assignment{RDTResource, "bronze", SourceDefault, ""}
	noBlockIO := Assignment{Resource: BlockIOResource}
	tests := []struct {
		name           string
		pod, container notes
		want           [2]Assignment
	}{
		{"without a request, the default class, or the system default if there is none", nil, nil, [2]Assignment{bronzeRDT, noBlockIO}},
		{"annotations of others do not matter", notes{"a/b": "rdt=x", "container.qos.noderesource.dev/other": "?", "rdt.resources.kubernetes.io/container.other": "?"}, notes{"io.kubernetes.cri.container-name": "main", "allocated.qos.noderesource.dev": "?"}, [2]Assignment{bronzeRDT, noBlockIO}},
		{"several pairs, short and canonical names, with space", notes{ownKey: " rdt=gold ,\n k8s.io/blockio=bronze "}, nil, [2]Assignment{{RDTResource, "gold", SourceContainer, ownKey}, {BlockIOResource, "bronze", SourceContainer, ownKey}}},
		{"a request for no class overrides the default", notes{ownKey: "rdt="}, nil, [2]Assignment{{RDTResource, "", SourceContainer, ownKey}, noBlockIO}},
		{"an annotation without pairs requests nothing", notes{ownKey: "", podKey: "  "}, nil, [2]Assignment{bronzeRDT, noBlockIO}},
		{"the same pair twice is one request", notes{ownKey: "rdt=gold,k8s.io/rdt=gold"}, nil, [2]Assignment{{RDTResource, "gold", SourceContainer, ownKey}, noBlockIO}},
		{"the highest annotation for each resource counts", notes{ownKey: "rdt=gold", podKey: "rdt=bronze,blockio=gold"}, nil, [2]Assignment{{RDTResource, "gold", SourceContainer, ownKey}, {BlockIOResource, "gold", SourcePod, podKey}}},
		{"a request for the class of the pod is skipped", notes{podKey: podResource + "=gold,blockio=gold"}, nil, [2]Assignment{bronzeRDT, {BlockIOResource, "gold", SourcePod, podKey}}},
		{"a pod-wide default does not contradict an allocation", notes{podKey: "rdt=bronze", kepPodKey: "bronze"}, notes{allocatedKey: "rdt=gold"}, [2]Assignment{{RDTResource, "gold", SourceAllocated, allocatedKey}, noBlockIO}},
		{"an annotation that agrees with the allocation overrides one that does not", notes{ownKey: "rdt=gold", kepKey: "bronze"}, notes{allocatedKey: "k8s.io/rdt=gold"}, [2]Assignment{{RDTResource, "gold", SourceContainer, ownKey}, noBlockIO}},
		{"allocations of several resources", nil, notes{allocatedKey: "rdt=gold", "allocated.qos.noderesource.dev/": "blockio=bronze"}, [2]Assignment{{RDTResource, "gold", SourceAllocated, allocatedKey}, {BlockIOResource, "bronze", SourceAllocated, "allocated.qos.noderesource.dev/"}}},
		{"an allocation twice for the same class", nil, notes{allocatedKey: "rdt=gold", allocatedKey + "-2": "rdt=gold"}, [2]Assignment{{RDTResource, "gold", SourceAllocated, allocatedKey}, noBlockIO}},
		{"an allocation of the pod's class gives the container no class", notes{podKey: podResource + "=gold"}, notes{"allocated.qos.noderesource.dev/p": podResource + "=gold"}, [2]Assignment{bronzeRDT, noBlockIO}},
		{"the keys for blockio are read like those for rdt", notes{"blockio.resources.beta.kubernetes.io/pod": "gold", "rdt.resources.kubernetes.io/default": "gold"}, notes{"io.kubernetes.cri.blockio-class": "bronze"}, [2]Assignment{{RDTResource, "gold", SourcePod, kepPodKey}, {BlockIOResource, "bronze", SourceContainer, "io.kubernetes.cri.blockio-class"}}},
		{"an overridden class need not exist", notes{ownKey: "rdt=gold", podKey: "rdt=platin"}, nil, [2]Assignment{{RDTResource, "gold", SourceContainer, ownKey}, noBlockIO}},
		{"the system default of an unavailable resource can be requested", notes{podKey: "v.example/gone="}, nil, [2]Assignment{bronzeRDT, noBlockIO}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := resolveMain(testCatalog(), test.pod, test.container)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want[:], got[:2]); diff != "" {
				t.Error(diff)
			}
			if len(got) != 3 || got[2].Class != SystemDefault {
				t.Errorf("the assignments are %+v, want three, and the system default for the last resource", got)
			}
		})
	}
}

func TestRefusedRequestsHaveAReasonInOneLine(t *testing.T) {
	const subject = "pod default/web container main: "
	tests := []struct {
		name           string
		pod, container notes
		reason         error
		want           string
	}{
		{"an unknown class", notes{ownKey: "rdt=platin"}, nil, ErrUnknownClass, `class "platin" of k8s.io/rdt does not exist on this node; available: gold, bronze (requested by annotation container.qos.noderesource.dev/main)`},
		{"an unknown resource", notes{ownKey: "x=gold"}, nil, ErrUnknownResource, `resource "x" does not exist on this node; available: k8s.io/rdt, k8s.io/blockio, qos.noderesource.dev/pod-blockio (requested by annotation container.qos.noderesource.dev/main)`},
		{"an unknown resource of the pod", notes{podKey: "x=gold"}, nil, ErrUnknownResource, `resource "x" does not exist on this node; available: k8s.io/rdt, k8s.io/blockio, qos.noderesource.dev/pod-blockio (requested by annotation qos.noderesource.dev/pod)`},
		{"an unavailable resource", notes{ownKey: "v.example/gone=gold"}, nil, ErrUnavailable, `class "gold" of v.example/gone is unavailable on this node: the driver is not loaded; load it (requested by annotation container.qos.noderesource.dev/main)`},
		{"a resource of pods in a container", notes{ownKey: podResource + "=gold"}, nil, ErrBadRequest, `qos.noderesource.dev/pod-blockio is for pods, not for containers; request it in annotation qos.noderesource.dev/pod (requested by annotation container.qos.noderesource.dev/main)`},
		{"an allocation of the pod's class without a request", nil, notes{allocatedKey: podResource + "=gold"}, ErrBadRequest, `qos.noderesource.dev/pod-blockio is for pods, not for containers; request it in annotation qos.noderesource.dev/pod (requested by extended resource qos.noderesource.dev/pod-blockio.gold in the container's resources.limits)`},
		{"an allocation of another class of the pod", notes{podKey: podResource + "=bronze"}, notes{allocatedKey: podResource + "=gold"}, ErrAllocated, `class "bronze" of qos.noderesource.dev/pod-blockio contradicts the allocated class "gold"; request the same class in the annotation and in resources.limits (requested by annotation qos.noderesource.dev/pod)`},
		{"a container that contradicts its allocation", notes{ownKey: "rdt=bronze"}, notes{allocatedKey: "rdt=gold"}, ErrAllocated, `class "bronze" of k8s.io/rdt contradicts the allocated class "gold"; request the same class in the annotation and in resources.limits (requested by annotation container.qos.noderesource.dev/main)`},
		{"a container that asks for nothing against its allocation", notes{kepKey: ""}, notes{allocatedKey: "rdt=gold"}, ErrAllocated, `class "" of k8s.io/rdt contradicts the allocated class "gold"; request the same class in the annotation and in resources.limits (requested by annotation rdt.resources.kubernetes.io/container.main)`},
		{"two allocations", nil, notes{allocatedKey: "rdt=gold", allocatedKey + "-2": "rdt=bronze"}, ErrContradiction, `k8s.io/rdt has two classes, "gold" and "bronze"; keep one of them (requested by extended resource qos.noderesource.dev/rdt.bronze in the container's resources.limits)`},
		{"two classes in one request", notes{ownKey: "rdt=gold,k8s.io/rdt=bronze"}, nil, ErrContradiction, `k8s.io/rdt has two classes, "gold" and "bronze"; keep one of them (requested by annotation container.qos.noderesource.dev/main)`},
		{"no class", notes{ownKey: "rdt"}, nil, ErrBadRequest, `the request has "rdt", which is not of the form resource=class (requested by annotation container.qos.noderesource.dev/main)`},
		{"no resource", notes{ownKey: "=gold"}, nil, ErrBadRequest, `the request has "=gold", which is not of the form resource=class (requested by annotation container.qos.noderesource.dev/main)`},
		{"a comma too many", notes{podKey: "rdt=gold,"}, nil, ErrBadRequest, `the request has nothing before or after a comma; write resource=class[,resource=class...] (requested by annotation qos.noderesource.dev/pod)`},
		{"spaces within", notes{ownKey: "rdt = gold"}, nil, ErrBadRequest, `the request has "rdt = gold"; write resource=class, without spaces and with only one "=" (requested by annotation container.qos.noderesource.dev/main)`},
		{"two equals signs", notes{ownKey: "rdt=a=b"}, nil, ErrBadRequest, `the request has "rdt=a=b"; write resource=class, without spaces and with only one "=" (requested by annotation container.qos.noderesource.dev/main)`},
		{"an allocation that is not a pair", nil, notes{allocatedKey: "gold"}, ErrBadRequest, `the request has "gold", which is not of the form resource=class (requested by the kubelet's annotation allocated.qos.noderesource.dev/rdt)`},
		{"a request that is too long", notes{ownKey: strings.Repeat("rdt=gold,", 200000)}, nil, ErrBadRequest, `the request is longer than 16384 bytes (requested by annotation container.qos.noderesource.dev/main)`},
		{"a long class on several lines", notes{betaPodKey: strings.Repeat("a\n", 500000)}, nil, ErrUnknownClass, `class "` + strings.Repeat("a?", 32) + `..." of k8s.io/rdt does not exist on this node; available: gold, bronze (requested by annotation rdt.resources.beta.kubernetes.io/pod)`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := resolveMain(testCatalog(), test.pod, test.container)
			if !errors.Is(err, test.reason) || err.Error() != subject+test.want {
				t.Errorf("got  %v\nwant %s%s", err, subject, test.want)
			}
			var request *RequestError
			if !errors.As(err, &request) || request.Holder.PodName != "web" || request.Holder.Container != "main" {
				t.Errorf("got %#v", err)
			}
		})
	}
}

// TestRequestsForAMissingOfficialResourceAreRefused has a node without RDT, and one whose RDT is for pods. The annotations of the
// runtimes are ignored there, because other nodes use them. All other requests are refused.
func TestRequestsForAMissingOfficialResourceAreRefused(t *testing.T) {
	for name, resource := range map[string]Resource{
		"no RDT":       {Name: "v.example/x", Scope: VolumeScope},
		"RDT for pods": {Name: RDTResource, Scope: PodScope, Classes: twoClasses()},
	} {
		without := NewCatalog([]Offer{{Resource: resource}})
		if got, err := resolveMain(without, notes{betaKey: "gold", betaPodKey: "gold"}, notes{criKey: "gold", "io.kubernetes.cri.blockio-class": "gold"}); err != nil || len(got) != 0 {
			t.Errorf("%s: the annotations of the runtimes are not ignored: %v, %v", name, got, err)
		}
		for _, key := range []string{kepKey, kepPodKey} {
			if _, err := resolveMain(without, notes{key: "gold"}, nil); !errors.Is(err, ErrUnknownResource) {
				t.Errorf("%s: the error for %s is %v, want ErrUnknownResource", name, key, err)
			}
		}
	}

	without := NewCatalog(nil)
	for _, key := range []string{ownKey, podKey} {
		if _, err := resolveMain(without, notes{key: "rdt=x"}, nil); !errors.Is(err, ErrUnknownResource) {
			t.Errorf("the error for %s is %v, want ErrUnknownResource", key, err)
		}
	}
	if _, err := resolveMain(without, nil, notes{allocatedKey: "rdt=x"}); !errors.Is(err, ErrUnknownResource) {
		t.Errorf("the error for an allocated class is %v, want ErrUnknownResource", err)
	}
}

func TestErrorsNameTheNodeOfTheClasses(t *testing.T) {
	elsewhere := testCatalog().At("on node-1")
	for request, want := range map[string]string{
		"rdt=platin":         "class \"platin\" of k8s.io/rdt does not exist on node-1; ",
		"vendor.example/x=a": "resource \"vendor.example/x\" does not exist on node-1; ",
	} {
		if _, err := resolveMain(elsewhere, notes{ownKey: request}, nil); !strings.Contains(errorText(err), want) {
			t.Errorf("%s: got %v, want %s", request, err, want)
		}
	}
}

func TestOfSeveralProblemsTheSameOneIsReportedEachTime(t *testing.T) {
	allocated := notes{}
	for _, suffix := range strings.Split("abcdefgh", "") {
		allocated[AllocatedKeyPrefix+suffix] = "rdt=" + suffix
	}
	for range 10 {
		_, err := resolveMain(testCatalog(), nil, allocated)
		want := `pod default/web container main: k8s.io/rdt has two classes, "a" and "b"; keep one of them (requested by extended resource qos.noderesource.dev/rdt.b in the container's resources.limits)`
		if errorText(err) != want {
			t.Fatalf("got %v", err)
		}
	}
}

func TestResolveOfPods(t *testing.T) {
	tests := []struct {
		name   string
		pod    notes
		want   Assignment
		reason error
	}{
		{"no request", nil, Assignment{Resource: podResource}, nil},
		{"a class for the pod", notes{podKey: "rdt=bronze," + podResource + "=gold"}, Assignment{podResource, "gold", SourcePod, podKey}, nil},
		{"the system default", notes{podKey: podResource + "="}, Assignment{podResource, "", SourcePod, podKey}, nil},
		{"a request for all containers is not checked for the pod", notes{podKey: "rdt=platin"}, Assignment{Resource: podResource}, nil},
		{"annotations for containers do not matter", notes{ownKey: "?", kepPodKey: "platin"}, Assignment{Resource: podResource}, nil},
		{"an unknown class", notes{podKey: podResource + "=platin"}, Assignment{}, ErrUnknownClass},
		{"an unknown resource", notes{podKey: "x=gold"}, Assignment{}, ErrUnknownResource},
		{"two classes", notes{podKey: podResource + "=gold," + podResource + "=bronze"}, Assignment{}, ErrContradiction},
		{"a request that is not a pair", notes{podKey: "nonsense"}, Assignment{}, ErrBadRequest},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := testCatalog().Resolve(Holder{PodNamespace: "default", PodName: "web", PodAnnotations: test.pod})
			if test.reason != nil {
				if !errors.Is(err, test.reason) || !strings.HasPrefix(err.Error(), "pod default/web: ") {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || len(got) != 1 || got[0] != test.want {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestResolveDoesNotChangeSharedDefaults(t *testing.T) {
	c := testCatalog()
	before, _ := resolveMain(c, nil, nil)
	copied := append([]Assignment(nil), before...)
	if _, err := resolveMain(c, notes{ownKey: "rdt=gold,blockio=gold"}, nil); err != nil {
		t.Fatal(err)
	}
	after, _ := resolveMain(c, nil, nil)
	if diff := cmp.Diff(copied, after); diff != "" {
		t.Error(diff)
	}
}

func TestResolveWithoutRequestsAllocatesNoMemory(t *testing.T) {
	c, pod, container := testCatalog(), othersAnnotations(), othersAnnotations()
	allocations := testing.AllocsPerRun(100, func() {
		if _, err := resolveMain(c, pod, container); err != nil {
			t.Fatal(err)
		}
	})
	if allocations != 0 {
		t.Errorf("Resolve makes %v memory allocations, want 0", allocations)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestParsePairs(t *testing.T) {
	tests := []struct {
		value string
		want  []Pair
		err   string
	}{
		{"", nil, ""},
		{" \n", nil, ""},
		{"rdt=gold, v.example/x=y ,blockio=", []Pair{{RDTResource, "gold"}, {"v.example/x", "y"}, {BlockIOResource, ""}}, ""},
		{"rdt=gold,rdt=gold", []Pair{{RDTResource, "gold"}}, ""},
		{"rdt=gold,k8s.io/rdt=", nil, `k8s.io/rdt has two classes, "gold" and ""; keep one of them`},
		{",", nil, "the request has nothing before or after a comma; write resource=class[,resource=class...]"},
		{"rdt", nil, `the request has "rdt", which is not of the form resource=class`},
	}
	for _, test := range tests {
		got, err := ParsePairs(test.value)
		if diff := cmp.Diff(test.want, got); diff != "" || errorText(err) != test.err {
			t.Errorf("%q is parsed as %v with the error %v, want %v and %q", test.value, got, err, test.want, test.err)
		}
	}
}

// othersAnnotations returns annotations that other programs usually set on a container. They request no class.
func othersAnnotations() notes {
	return notes{
		"io.kubernetes.cri.container-name": "main", "io.kubernetes.cri.container-type": "container",
		"io.kubernetes.cri.image-name": "registry.example/app:1", "io.kubernetes.cri.sandbox-id": "0123",
		"io.kubernetes.cri.sandbox-name": "web", "io.kubernetes.cri.sandbox-namespace": "default",
		"kubernetes.io/config.seen": "2026", "prometheus.io/scrape": "true",
	}
}

func BenchmarkResolve(b *testing.B) {
	for name, requests := range map[string]struct{ pod, container notes }{
		"nothing":   {},
		"allocated": {container: notes{allocatedKey: "rdt=gold"}},
		"annotated": {pod: notes{ownKey: "rdt=gold,blockio=bronze"}},
	} {
		b.Run(name, func(b *testing.B) {
			c, pod, container := testCatalog(), othersAnnotations(), othersAnnotations()
			maps.Copy(pod, requests.pod)
			maps.Copy(container, requests.container)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := resolveMain(c, pod, container); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
