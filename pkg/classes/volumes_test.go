// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const volumeIO = "qos.noderesource.dev/volume-io"

func volumeCatalog(unavailable *Unavailable) *Catalog {
	return NewCatalog([]Offer{
		{Resource: Resource{Name: RDTResource, Scope: ContainerScope, Classes: []Class{{Name: "gold"}}}},
		{Resource: Resource{Name: volumeIO, Scope: VolumeScope, Classes: []Class{{Name: "silver"}, {Name: "gold"}}}, Unavailable: unavailable},
	})
}

func withVolumes(request string) Holder {
	return Holder{
		ID: "c1", PodUID: "1", PodNamespace: "ns", PodName: "pod", Container: "main", CgroupsPath: "/pods/1/c1", PodCgroupsPath: "/pods/1", PID: 5,
		PodAnnotations: map[string]string{VolumeKeyPrefix + "main": request, VolumeKeyPrefix + "other": "/x=gold"},
	}
}

func manyVolumes(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("/v%d=gold", i)
	}
	return strings.Join(all, ",")
}

// resolved returns the volumes of a container with their containers, cgroups and classes, and the first error.
func resolved(c *Catalog, request string) (all []string, err error) {
	volumes, err := Volumes(withVolumes(request))
	for _, v := range volumes {
		assignments, err := c.Resolve(v)
		if err != nil {
			return nil, err
		}
		all = append(all, v.ID+" of "+v.ContainerID+" in "+v.CgroupsPath+": "+assignments[0].Resource+" "+assignments[0].Class)
	}
	return all, err
}

func TestVolumesGetTheClassesThatThePodRequests(t *testing.T) {
	for request, want := range map[string][]string{
		"":                              nil,
		"/data=":                        nil,
		"/data=silver":                  {"c1:/data of c1 in /pods/1: " + volumeIO + " silver"},
		"/a/=gold , /b=silver ,/a=gold": {"c1:/a of c1 in /pods/1: " + volumeIO + " gold", "c1:/b of c1 in /pods/1: " + volumeIO + " silver"},
	} {
		got, err := resolved(volumeCatalog(nil), request)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q (-want +got):\n%s%v", request, diff, err)
		}
	}
}

func TestRequestsForVolumesAreRefusedInOneLine(t *testing.T) {
	for _, test := range []struct {
		request string
		catalog *Catalog
		is      error
		want    string
	}{
		{"data=gold", volumeCatalog(nil), ErrBadRequest, `pod ns/pod container main: the request has "data=gold", which is not of the form /path=class`},
		{"/data", volumeCatalog(nil), ErrBadRequest, `the request has "/data"`},
		{"/a=gold,", volumeCatalog(nil), ErrBadRequest, `the request has ""`},
		{"/a=gold=x", volumeCatalog(nil), ErrBadRequest, "not of the form /path=class"},
		{"/a=" + strings.Repeat("x", maxPairsLength), volumeCatalog(nil), ErrBadRequest, "longer than"},
		{manyVolumes(MaxVolumes + 1), volumeCatalog(nil), ErrBadRequest, "the request has more than 32 volumes"},
		{"/a=gold,/a/=silver", volumeCatalog(nil), ErrContradiction, `volume /a has two classes, "gold" and "silver"`},
		{"/a=none", volumeCatalog(nil), ErrUnknownClass, `pod ns/pod container main volume /a: class "none" of ` + volumeIO + " does not exist on this node"},
		{"/a=gold", volumeCatalog(&Unavailable{Message: "use cgroup v2"}), ErrUnavailable, "use cgroup v2"},
		{"/a=gold", NewCatalog(nil), ErrUnknownResource, "there is no resource of volume scope on this node"},
	} {
		_, err := resolved(test.catalog, test.request)
		if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), VolumeKeyPrefix+"main") {
			t.Errorf("%.40q: got %v, want %q", test.request, err, test.want)
		}
	}
}

// TestAVolumeWithAClaimIsListedOnceIfTheClassExists gives the volume /data a PersistentVolumeClaim with a class. The
// class gold exists, and lead does not. Volumes of the annotation are listed whether or not their class exists.
func TestAVolumeWithAClaimIsListedOnceIfTheClassExists(t *testing.T) {
	c := NewCatalog([]Offer{{Resource: Resource{Name: ClaimResource, Scope: VolumeScope, FromClaims: true, Classes: []Class{{Name: "gold"}}}}})
	for _, test := range []struct{ annotation, class, want string }{
		{"", "gold", "/data"},
		{"", "lead", ""},
		{"/data=silver", "gold", "/data"},
		{"/data=silver", "lead", "/data"},
		{"/log=silver", "gold", "/log /data"},
	} {
		holder := withVolumes(test.annotation)
		claimed := ClaimedVolume{Subject: holder.Subject(), Class: test.class}
		claimed.Volume = "/data"
		volumes, err := c.WithClaims([]ClaimedVolume{claimed}).Volumes(holder)
		if err != nil {
			t.Fatal(err)
		}

		var paths []string
		for _, v := range volumes {
			paths = append(paths, v.Volume)
		}

		if got := strings.Join(paths, " "); got != test.want {
			t.Errorf("annotation %q, claim of class %s: the volumes are %q, want %q", test.annotation, test.class, got, test.want)
		}
	}
}

func TestAResourceOfVolumesIsRequestedForVolumesOnly(t *testing.T) {
	c := volumeCatalog(nil)
	for _, holder := range []Holder{
		{Container: "main", PodAnnotations: map[string]string{ContainerKeyPrefix + "main": volumeIO + "=gold"}},
		{Container: "main", PodAnnotations: map[string]string{PodKey: volumeIO + "=gold"}},
		{PodAnnotations: map[string]string{PodKey: volumeIO + "=gold"}},
		{Container: "main", ContainerAnnotations: map[string]string{AllocatedKeyPrefix + "x": volumeIO + "=gold"}},
	} {
		if _, err := c.Resolve(holder); !errors.Is(err, ErrBadRequest) || !strings.Contains(err.Error(), "request it in annotation "+VolumeKeyPrefix) {
			t.Errorf("got %v", err)
		}
	}

	// A container without a request has no class of volumeIO. The catalog's only other resource is RDT.
	if got, err := c.Resolve(Holder{Container: "main"}); err != nil || len(got) != 1 || got[0].Resource != RDTResource {
		t.Errorf("a container gets the assignments %v and the error %v, want one of RDT", got, err)
	}
}

func FuzzVolumes(f *testing.F) {
	for _, seed := range []string{"/a=b", "/a=b,/c=", "a", ",", "/a=b,/a=c", "/../x=y"} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, request string) {
		volumes, err := Volumes(withVolumes(request))
		if err != nil && (RefusalReason(err) == "" || strings.Contains(err.Error(), "\n")) {
			t.Errorf("the error has no known reason, or several lines: %q", err)
		}
		for _, v := range volumes {
			if v.Volume != path.Clean(v.Volume) || !path.IsAbs(v.Volume) || v.Scope() != VolumeScope {
				t.Errorf("the volume %q has an unclean or relative path, or another scope", v.Volume)
			}
		}
	})
}
