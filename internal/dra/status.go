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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

const (
	// conditionAssigned is the type of the condition of a device in the status of a claim.
	conditionAssigned = "Assigned"
	fieldManager      = "qos-dra-driver"
	statusTimeout     = 10 * time.Second
	// maxMessage limits the message of a condition, in bytes.
	maxMessage = 1 << 10
)

// outcome says whether an allocation has become the class of containers. It is empty while that is not known.
type outcome struct{ status, reason, message string }

// outcomeOf returns the outcome of an allocation for the pods of its claim.
func outcomeOf(pods []types.UID, a allocation, assignments *qosv1alpha1.ListAssignmentsResponse) outcome {
	has := func(list []*qosv1alpha1.Assignment) bool {
		return slices.ContainsFunc(list, func(o *qosv1alpha1.Assignment) bool { return o.GetName() == a.Resource && o.GetClass() == a.Class })
	}
	var owners []string
	for _, pod := range assignments.GetPods() {
		if !slices.Contains(pods, types.UID(pod.GetUid())) {
			continue
		}
		if has(pod.GetQosResources()) {
			owners = append(owners, "pod "+pod.GetName())
		}
		for _, container := range pod.GetContainers() {
			if has(container.GetQosResources()) {
				owners = append(owners, fmt.Sprintf("container %s of pod %s", container.GetName(), pod.GetName()))
			}
		}
	}
	if len(owners) > 0 {
		slices.Sort(owners)
		message := fmt.Sprintf("class %s of %s: %s", a.Class, a.Resource, strings.Join(owners, ", "))
		return outcome{string(metav1.ConditionTrue), nodeqosv1alpha1.ReasonAssigned, printable.Text(message, maxMessage)}
	}

	for _, refused := range assignments.GetRefusals() {
		if slices.Contains(pods, types.UID(refused.GetPodUid())) {
			return outcome{string(metav1.ConditionFalse), refused.GetReason(), printable.Text(refused.GetMessage(), maxMessage)}
		}
	}
	return outcome{}
}

// report writes into the status of each prepared claim which classes the claim has given, if that has changed. The result is true if it
// must be called again. An answer of the API server about one claim does not keep it from the others.
func (d *Driver) report(ctx context.Context, assignments *qosv1alpha1.ListAssignmentsResponse) (again bool) {
	d.mu.Lock()
	claims := maps.Clone(d.record.claims)
	d.mu.Unlock()

	for _, uid := range slices.Sorted(maps.Keys(claims)) {
		claim := claims[uid]
		outcomes := make([]outcome, len(claim.Allocations))
		for i, a := range claim.Allocations {
			outcomes[i] = outcomeOf(claim.Pods, a, assignments)
		}
		text := fmt.Sprint(outcomes)
		if text == claim.Reported || slices.Contains(outcomes, outcome{}) {
			continue
		}

		if err := d.apply(ctx, uid, claim, outcomes); err != nil {
			d.log.Warn("cannot write the status of a claim, trying again", "claim", claim.Namespace+"/"+claim.Name, "error", err)
			if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown { // no answer, so the others would wait for one, too
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
		data, err := json.Marshal(map[string]string{attributeResource: a.Resource, attributeClass: a.Class})
		if err != nil {
			return err
		}
		o := outcomes[i]
		device := resourceapply.AllocatedDeviceStatus().WithDriver(DriverName).WithPool(d.options.NodeName).WithDevice(a.Device).
			WithData(runtime.RawExtension{Raw: data}).
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
