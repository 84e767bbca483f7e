// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// web returns a pod whose container main has a class.
func web(class string) *qosv1alpha1.PodAssignments {
	pod := has(class, qosv1alpha1.Source_SOURCE_ALLOCATED)
	pod.Uid, pod.Name = "pod-uid", "web"
	return pod
}

// claimStatus returns the status of the devices of a claim in the API, as "device: status reason: message data".
func claimStatus(t *testing.T, d *Driver, name string) (list []string) {
	t.Helper()
	c := must.Get(d.client.ResourceV1().ResourceClaims("shop").Get(t.Context(), name, metav1.GetOptions{}))(t)
	for _, device := range c.Status.Devices {
		condition := device.Conditions[0]
		list = append(list, fmt.Sprintf("%s: %s %s: %s %s", device.Device, condition.Status, condition.Reason, condition.Message, device.Data.Raw))
	}
	return list
}

// with returns the state of a plugin with these assignments, whose class gold has values.
func with(pods ...*qosv1alpha1.PodAssignments) nodecache.State {
	list := goldAndSilver()
	list[0].Values = map[string]string{"L3": "0=ff;1=f", "MB": "0=50"}
	return state(list, pods...)
}

// TestTheStatusOfAClaimShowsTheOutcomesOfItsAllocations lets a restarted driver report one state of the plugin after another: no pod of the
// claim, a refusal, the class, the same class again, and a change of the class. The driver writes an outcome only if it is new.
func TestTheStatusOfAClaimShowsTheOutcomesOfItsAllocations(t *testing.T) {
	dir := t.TempDir()
	c := ofWeb("1", "rdt-gold")
	client := fake.NewClientset(c)
	writes := 0
	client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		writes++
		return false, nil, nil
	})
	restarted := func() *Driver {
		d := newDriver(t, dir, state(goldAndSilver()))
		d.client = client
		return d
	}

	d := restarted()
	must.Get(d.prepareOne(t, c))(t)
	refused := with()
	refused.Assignments.Refusals = []*qosv1alpha1.Refusal{
		{PodUid: "other", Reason: "ClassFull", Message: "of another pod"}, {PodUid: "pod-uid", Reason: "ClassFull", Message: "class gold is full"},
	}
	const given = `rdt-gold: True Assigned: class gold of k8s.io/rdt: container main of pod web {"class":"gold","resource":"k8s.io/rdt","values":{"L3":"0=ff;1=f","MB":"0=50"}}`
	changed := web("silver")
	changed.Containers[0].QosResources[0].Source = qosv1alpha1.Source_SOURCE_UPDATE
	for i, step := range []struct {
		state  nodecache.State
		writes int
		want   string
	}{
		{with(has("gold", qosv1alpha1.Source_SOURCE_CONTAINER)), 0, ""},
		{refused, 1, `rdt-gold: False ClassFull: class gold is full {"class":"gold","resource":"k8s.io/rdt"}`},
		{with(web("gold")), 2, given},
		{with(web("gold")), 2, given},
		{with(changed), 3, `rdt-gold: False ClassChanged: the class was changed to silver of k8s.io/rdt: container main of pod web {"class":"silver","resource":"k8s.io/rdt"}`},
	} {
		if again := restarted().report(t.Context(), step.state); again {
			t.Errorf("step %d: the status has to be written again", i)
		}
		got := claimStatus(t, d, c.Name)
		if writes != step.writes || fmt.Sprint(got) != "["+step.want+"]" {
			t.Errorf("step %d: after %d writes the status is %q, want %d and %q", i, writes, got, step.writes, step.want)
		}
	}
}

func TestAFailedWriteOfAStatusIsRetried(t *testing.T) {
	d := newDriver(t, t.TempDir(), state(goldAndSilver()))
	c := ofWeb("1", "rdt-gold")
	client := fake.NewClientset(c)
	d.client = client
	must.Get(d.prepareOne(t, c))(t)
	failing := true
	client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failing, nil, errors.New("the API server is away")
	})
	if again := d.report(t.Context(), with(web("gold"))); !again {
		t.Error("the driver does not try again")
	}
	failing = false
	if again := d.report(t.Context(), with(web("gold"))); again || len(claimStatus(t, d, c.Name)) != 1 {
		t.Errorf("another attempt is needed: %t, and the status is %q; want no attempt, and the status of a device", again, claimStatus(t, d, c.Name))
	}
}

// TestARefusedWriteOfAStatusDoesNotDelayOthers prepares two claims. The API server refuses to write the status of the first.
func TestARefusedWriteOfAStatusDoesNotDelayOthers(t *testing.T) {
	d := newDriver(t, t.TempDir(), state(goldAndSilver()))
	claims := []*resourcev1.ResourceClaim{ofWeb("1", "rdt-gold"), ofWeb("2", "rdt-gold")}
	client := fake.NewClientset(claims[0], claims[1])
	d.client = client
	for _, c := range claims {
		must.Get(d.prepareOne(t, c))(t)
	}
	client.PrependReactor("patch", "resourceclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.PatchAction).GetName()
		return name == "c-1", nil, apierrors.NewForbidden(resourcev1.Resource("resourceclaims"), name, errors.New("not allocated here"))
	})
	if again := d.report(t.Context(), with(web("gold"))); !again || len(claimStatus(t, d, "c-2")) != 1 {
		t.Errorf("another attempt is needed: %t, and the status of the second claim is %q; want an attempt, and the status of a device", again, claimStatus(t, d, "c-2"))
	}
}

// TestValuesThatAreTooLongAreOmittedFromTheStatusOfAClaim has values that the API server would refuse.
func TestValuesThatAreTooLongAreOmittedFromTheStatusOfAClaim(t *testing.T) {
	long := given{Class: "gold", Resource: "k8s.io/rdt", Values: map[string]string{"io.max": strings.Repeat("x", resourcev1.AllocatedDeviceStatusDataMaxLength)}}
	if got := long.text(); got != `{"class":"gold","resource":"k8s.io/rdt"}` {
		t.Errorf("the data is %.100s", got)
	}
}
