// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

const (
	// conditionAssigned is the type of the condition of a device in the status of a claim.
	conditionAssigned = "Assigned"
	// reasonChanged means that the class of the containers was changed after it was allocated.
	reasonChanged = "ClassChanged"
	fieldManager  = "qos-dra-driver"
	statusTimeout = 10 * time.Second
	// maxMessage limits the message of a condition, in bytes.
	maxMessage = 1 << 10
)

// outcome is the result of an allocation: whether containers or a pod have the class. It is empty while that is not
// known.
type outcome struct {
	status, reason, message string
	data                    string // JSON
}

// given is the data of a device in the status of a claim. `Class` is the effective class.
type given struct {
	Class    string            `json:"class"`
	Resource string            `json:"resource"`
	Values   map[string]string `json:"values,omitempty"`
}

// text returns the JSON. It leaves out values that are too long for the status.
func (g given) text() string {
	data, err := json.Marshal(g)
	if err == nil && len(data) > resourcev1.AllocatedDeviceStatusDataMaxLength {
		data, err = json.Marshal(given{Class: g.Class, Resource: g.Resource})
	}
	if err != nil {
		return "{}" // strings can always be encoded
	}
	return string(data)
}

// valuesOf returns the values of a class on this machine.
func valuesOf(resources *qosv1alpha1.ResourcesInfo, p classes.Pair) map[string]string {
	for _, r := range resources.All() {
		for _, c := range r.GetClasses() {
			if r.GetName() == p.Resource && c.GetName() == p.Class {
				return c.GetValues()
			}
		}
	}
	return nil
}

// ownersIn returns the containers and pods among `pods` with an assignment for which `has` returns true, in the form
// "container main of pod web".
func ownersIn(pods []types.UID, assignments *qosv1alpha1.ListAssignmentsResponse, has func(*qosv1alpha1.Assignment) bool) (owners []string) {
	for _, pod := range assignments.GetPods() {
		if !slices.Contains(pods, types.UID(pod.GetUid())) {
			continue
		}
		if slices.ContainsFunc(pod.GetQosResources(), has) {
			owners = append(owners, "pod "+pod.GetName())
		}
		for _, container := range pod.GetContainers() {
			if slices.ContainsFunc(container.GetQosResources(), has) {
				owners = append(owners, fmt.Sprintf("container %s of pod %s", container.GetName(), pod.GetName()))
			}
		}
	}
	slices.Sort(owners)
	return owners
}

// outcomeOf returns the outcome of an allocation for the pods of its claim.
func outcomeOf(pods []types.UID, a allocation, state nodecache.State) outcome {
	resources := state.Status.GetResources()
	of := func(status metav1.ConditionStatus, reason, message string, p classes.Pair) outcome {
		data := given{Class: p.Class, Resource: p.Resource, Values: valuesOf(resources, p)}
		return outcome{string(status), reason, printable.Text(message, maxMessage), data.text()}
	}
	owners := ownersIn(pods, state.Assignments, func(o *qosv1alpha1.Assignment) bool { return o.GetName() == a.Resource && o.GetClass() == a.Class })
	if len(owners) > 0 {
		return of(metav1.ConditionTrue, nodeqosv1alpha1.ReasonAssigned, fmt.Sprintf("class %s of %s: %s", a.Class, a.Resource, strings.Join(owners, ", ")), a.Pair)
	}

	now := classes.Pair{Resource: a.Resource}
	owners = ownersIn(pods, state.Assignments, func(o *qosv1alpha1.Assignment) bool {
		changed := o.GetName() == a.Resource && o.GetSource() == qosv1alpha1.Source_SOURCE_UPDATE
		if changed {
			now.Class = o.GetClass()
		}
		return changed
	})
	if len(owners) > 0 {
		message := fmt.Sprintf("the class was changed to %s of %s: %s", now.Class, now.Resource, strings.Join(owners, ", "))
		return of(metav1.ConditionFalse, reasonChanged, message, now)
	}

	for _, refused := range state.Assignments.GetRefusals() {
		if slices.Contains(pods, types.UID(refused.GetPodUid())) {
			o := of(metav1.ConditionFalse, refused.GetReason(), refused.GetMessage(), a.Pair)
			o.data = given{Class: a.Class, Resource: a.Resource}.text() // no values are in force
			return o
		}
	}
	return outcome{}
}

// report writes the outcomes of each prepared claim into the status of the claim if they have changed. It must be
// called again if `again` is true. If the API server refuses one write, report still makes the others.
func (d *Driver) report(ctx context.Context, state nodecache.State) (again bool) {
	d.mu.Lock()
	claims := maps.Clone(d.record.claims)
	d.mu.Unlock()

	for _, uid := range slices.Sorted(maps.Keys(claims)) {
		claim := claims[uid]
		outcomes := make([]outcome, len(claim.Allocations))
		for i, a := range claim.Allocations {
			outcomes[i] = outcomeOf(claim.Pods, a, state)
		}
		text := fmt.Sprint(outcomes)
		if text == claim.Reported || slices.Contains(outcomes, outcome{}) {
			continue
		}

		if err := d.apply(ctx, uid, claim, outcomes); err != nil {
			d.log.Warn("cannot write the status of a claim, trying again", "claim", claim.Namespace+"/"+claim.Name, "error", err)
			if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown { // no answer, so the other writes would get none either
				return true
			}
			again = true
			continue
		}
		d.mu.Lock()
		err := d.record.report(uid, text)
		d.mu.Unlock()
		if err != nil {
			d.log.Warn("the status of a claim is written again after a restart", "error", err)
		}
	}
	return again
}

// apply writes the status of the devices of a claim. It succeeds if the claim does not exist any more.
func (d *Driver) apply(ctx context.Context, uid types.UID, claim prepared, outcomes []outcome) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()

	status := resourceapply.ResourceClaimStatus()
	for i, a := range claim.Allocations {
		o := outcomes[i]
		device := resourceapply.AllocatedDeviceStatus().WithDriver(DriverName).WithPool(d.options.NodeName).WithDevice(a.Device).
			WithData(runtime.RawExtension{Raw: []byte(o.data)}).
			WithConditions(metaapply.Condition().WithType(conditionAssigned).WithStatus(metav1.ConditionStatus(o.status)).
				WithReason(o.reason).WithMessage(o.message).WithLastTransitionTime(metav1.Now()))
		if a.ShareID != nil {
			device.WithShareID(string(*a.ShareID))
		}
		status.WithDevices(device)
	}
	_, err := d.client.ResourceV1().ResourceClaims(claim.Namespace).ApplyStatus(ctx,
		resourceapply.ResourceClaim(claim.Name, claim.Namespace).WithUID(uid).WithStatus(status),
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // the claim was deleted, or another claim has its name
		return nil
	}
	return err
}
