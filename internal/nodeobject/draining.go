// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

// maxDrainingPods is the maximum number of pods that the condition ClassesDraining names.
const maxDrainingPods = 20

// reportDraining sets the condition ClassesDraining if pods have requested a class that was removed from the class files. Otherwise it
// removes the condition.
func reportDraining(status *nodeqosv1alpha1.NodeQOSResourcesStatus, before []metav1.Condition, now time.Time) {
	status.Conditions = without(status.Conditions, nodeqosv1alpha1.ConditionClassesDraining)
	pods, omitted := drainingPods(&status.QOSResources)
	if len(pods) == 0 && omitted == 0 {
		return
	}

	if more := len(pods) - maxDrainingPods; more > 0 {
		pods, omitted = pods[:maxDrainingPods], omitted+int64(more)
	}
	if omitted > 0 {
		pods = append(pods, fmt.Sprintf("and %d more", omitted))
	}
	status.Conditions = append(status.Conditions, dated(metav1.Condition{
		Type: nodeqosv1alpha1.ConditionClassesDraining, Status: metav1.ConditionTrue, Reason: nodeqosv1alpha1.ReasonClassRemoved,
		Message: cut("Pods keep removed classes until they end, and pods that replace them cannot get these classes on this node. "+
			"Change their requests, or add the classes to the class files again: "+strings.Join(pods, ", "), longestMessage),
	}, before, now))
}

// drainingPods lists the pods that have requested a draining class, each with its first such class. It also returns the number of holders
// of draining classes that the object leaves out.
func drainingPods(status *nodeqosv1alpha1.QOSResourceStatus) (pods []string, omitted int64) {
	named := map[string]bool{}
	for _, r := range status.All() {
		for i := range r.Classes {
			class := &r.Classes[i]
			if !class.Draining {
				continue
			}
			omitted += class.HoldersOmitted
			for _, h := range class.Holders {
				pod := h.Namespace + "/" + h.Pod
				if !h.IsDefault() && !named[pod] {
					named[pod] = true
					pods = append(pods, fmt.Sprintf("%s (%s of %s)", pod, class.Name, r.Name))
				}
			}
		}
	}
	slices.Sort(pods)
	return pods, omitted
}
