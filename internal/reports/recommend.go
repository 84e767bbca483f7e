// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Recommendations has a recommendation for each container of a pod and each resource of container scope, and one for the
// pod and each resource of pod scope. Its message is qos.v1alpha1.RecommendResponse.
type Recommendations struct {
	Recommendations []Recommendation `json:"recommendations"`
}

// Recommendation is the advice for a container, or for a pod as a whole if the container has no name.
type Recommendation struct {
	// Node is set by kubectl-qos.
	Node      string `json:"node,omitempty"`
	Container `json:",inline"`
	Resource  string `json:"resource"`
	// Present is the class that the container or pod has.
	Present string `json:"presentClass"`
	// From and To limit the time that the advice is based on. Points is the number of points in this time.
	From   time.Time `json:"from,omitzero"`
	To     time.Time `json:"to,omitzero"`
	Points int       `json:"-"`
	// Problem is the reason why there is no advice, and the remedy.
	Problem string `json:"problem,omitempty"`
	Advice  `json:",inline"`
	// Full is true if the advised class has no free slot. Mutable is true if a running container can get another class.
	Full    bool `json:"full"`
	Mutable bool `json:"mutable"`
	// ClassFile is a class file with the class to add. It is nil if no class has to be added, or if the backend cannot
	// write one.
	ClassFile map[string]any `json:"classFile,omitempty"`
}

// Outcome is the kind of an Advice.
type Outcome string

// These are the outcomes.
const (
	Fits   Outcome = "fits"   // the class fits
	Add    Outcome = "add"    // no class fits; one would have to be added
	Unused Outcome = "unused" // the container used nothing that the classes limit
)

// Advice is the class that fits the recorded use of a resource.
type Advice struct {
	Outcome Outcome `json:"outcome,omitempty"`
	// Class is the smallest class that fits. It is empty if none does.
	Class string `json:"class,omitempty"`
	// Figures compare the use with the limits of Class, or with the limits of the class to add.
	Figures []Figure `json:"figures,omitempty"`
	// Left is the part of these limits that the container would not use, on average.
	Left float64 `json:"left"`
	// Held is true if the limit of the present class was reached in more than a few of the points. The need is then
	// unknown, so Class may still be too small.
	Held bool `json:"held"`
}

// Figure compares the use of a resource with a limit.
type Figure struct {
	// Name is the limit in words of users.
	Name           string `json:"limit"`
	classes.Series `json:",inline"`
	// Need is the value that is rarely exceeded, and Most is the highest value. Both include the other containers that
	// share the limit.
	Need  float64 `json:"need"`
	Most  float64 `json:"most"`
	Bound float64 `json:"bound"`
	// Close is the part of the points in which the use is close to the limit. Held is the part in which the limit of
	// the present class was reached.
	Close float64 `json:"close"`
	Held  float64 `json:"held"`
}
