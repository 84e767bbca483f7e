// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qos-nri/qos-nri-plugin/internal/columns"
)

// Words that people see.
const (
	systemDefault = "<system default>" // the empty class, which enforces nothing
	wholePod      = "<pod>"            // where others have the name of a container
	nothing       = "-"
	unlimited     = "inf" // KEP-3008, "Kubectl"
)

// gap is what is between two columns, as kubectl has it.
const gap = 3

// table is rows of cells, the header first. Rows may have fewer cells than others.
type table [][]string

// String is the table by itself.
func (t table) String() string { return (&columns.Widths{}).Format(t, "", gap) }

func className(class string) string {
	if class == "" {
		return systemDefault
	}
	return class
}

func yesNo(b bool) string {
	if b {
		return "Yes"
	}
	return "No"
}

func orNothing(text string) string {
	if text == "" {
		return nothing
	}
	return text
}

func timeText(t *metav1.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}
