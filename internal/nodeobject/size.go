// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/objectbudget"
)

// reducedTime is how long the publisher publishes a reduced status after the API server has refused a status because of its size.
const reducedTime = nodeqosv1alpha1.HeartbeatInterval

// ellipsis replaces a text that does not fit into the object.
const ellipsis = "…"

// limitSize makes a status fit into an object of limited size. If something is left out, it adds a condition that says so. The status
// has the volumes of `spec`, unless `reduced` is true.
func limitSize(
	status *nodeqosv1alpha1.NodeQOSResourcesStatus, spec nodeqosv1alpha1.NodeQOSResourcesSpec, reduced bool, before []metav1.Condition, now time.Time,
) {
	status.Conditions = without(status.Conditions, nodeqosv1alpha1.ConditionReportComplete)
	var omitted []string
	if reduced {
		reduce(status)
		omitted = append(omitted, "all holders, refusals and volumes, because the API server has refused a larger object")
	}
	if spec.VolumesOmitted > 0 {
		omitted = append(omitted, fmt.Sprintf("%d volumes of claims, which therefore have no limits", spec.VolumesOmitted))
	}
	if !reduced && omitsHolders(status.QOSResources) {
		omitted = append(omitted, "holders of classes")
	}
	if !reduced && status.RefusalsOmitted > 0 {
		omitted = append(omitted, "refusals")
	}
	if shortenMessages(status.Volumes) {
		omitted = append(omitted, "messages of volumes")
	}
	if shortenTexts(status) {
		omitted = append(omitted, "descriptions and messages")
	}
	if len(omitted) == 0 {
		return
	}

	status.Conditions = append(status.Conditions, dated(metav1.Condition{
		Type: nodeqosv1alpha1.ConditionReportComplete, Status: metav1.ConditionFalse, Reason: nodeqosv1alpha1.ReasonTooLarge,
		Message: "An object has a limited size, so it leaves out " + strings.Join(omitted, "; ") + ". Each namespace has an equal share of the size.",
	}, before, now))
}

func omitsHolders(status nodeqosv1alpha1.QOSResourceStatus) bool {
	for _, r := range status.All() {
		if r.ForeignOmitted > 0 {
			return true
		}
		for i := range r.Classes {
			if r.Classes[i].HoldersOmitted > 0 {
				return true
			}
		}
	}
	return false
}

// reduce leaves out all lists that users can make long.
func reduce(status *nodeqosv1alpha1.NodeQOSResourcesStatus) {
	for _, r := range status.QOSResources.All() {
		r.ForeignOmitted += int64(len(r.Foreign))
		r.Foreign = nil
		for i := range r.Classes {
			class := &r.Classes[i]
			class.HoldersOmitted += int64(len(class.Holders))
			class.Holders = nil
		}
	}
	status.RefusalsOmitted += int64(len(status.Refusals))
	status.Refusals, status.Volumes = nil, nil
}

// shortenMessages removes the messages of volumes that do not fit. It reports whether there are such messages.
func shortenMessages(volumes []nodeqosv1alpha1.VolumeStatus) bool {
	var with []*nodeqosv1alpha1.VolumeStatus
	for i := range volumes {
		if volumes[i].Message != "" {
			with = append(with, &volumes[i])
		}
	}

	_, omitted := objectbudget.Fit(with, objectbudget.VolumeMessages, objectbudget.VolumeMessages,
		func(v *nodeqosv1alpha1.VolumeStatus) (string, int) {
			namespace, _, _ := strings.Cut(v.Claim, "/")
			return namespace, objectbudget.Size(v.Message)
		})
	for _, v := range omitted {
		v.Message = ellipsis
	}
	return len(omitted) > 0
}

// shortenTexts removes the texts that do not fit. It reports whether there are such texts. Users cannot make these texts long, so they
// do not belong to namespaces. The conditions of the node take precedence, and descriptions of classes come last.
func shortenTexts(status *nodeqosv1alpha1.NodeQOSResourcesStatus) bool {
	var texts, degraded, descriptions []*string
	for i := range status.Conditions {
		texts = append(texts, &status.Conditions[i].Message)
	}
	texts = append(texts, &status.Config.Error)
	for i := range status.UnavailableResources {
		texts = append(texts, &status.UnavailableResources[i].Message)
	}
	for _, r := range status.QOSResources.All() {
		for i := range r.Conditions {
			texts = append(texts, &r.Conditions[i].Message)
		}
		for i := range r.Classes {
			class := &r.Classes[i]
			for j := range class.Conditions {
				texts = append(texts, &class.Conditions[j].Message)
			}
			degraded, descriptions = append(degraded, &class.Degraded), append(descriptions, &class.Description)
		}
	}

	texts = slices.Concat(texts, degraded, descriptions)
	_, omitted := objectbudget.Fit(texts, objectbudget.Texts, objectbudget.Texts, func(text *string) (string, int) {
		return "", objectbudget.Size(*text) - len(`"",`)
	})
	for _, text := range omitted {
		*text = ellipsis
	}
	return len(omitted) > 0
}

// isTooLarge reports whether the API server or etcd has refused an object because of its size.
func isTooLarge(err error) bool {
	if apierrors.IsRequestEntityTooLargeError(err) {
		return true
	}
	text := fmt.Sprint(err) // etcd's errors are recognized by their text: rpctypes.ErrRequestTooLarge, and that of a message above gRPC's limit
	return strings.Contains(text, "request is too large") || strings.Contains(text, "message larger than max")
}
