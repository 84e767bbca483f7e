// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// deviceClass is a DeviceClass by whose extendedResourceName the limits of a pod request a class from the DRA driver. The API server limits the
// cost of the expression, so it has no optionals; each device of the driver has both attributes.
const deviceClass = `apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: %[1]s
spec:
  extendedResourceName: %[2]s
  selectors:
  - cel:
      expression: >-
        device.driver == '` + classes.Domain + `' &&
        device.attributes['` + classes.Domain + `'].resource == '%[3]s' &&
        device.attributes['` + classes.Domain + `'].class == '%[4]s'
`

// DeviceClasses returns a DeviceClass for each class, as YAML documents. It leaves out classes that no extended resource stands for.
func DeviceClasses(known Known) []byte {
	var texts [][]byte
	for _, resource := range slices.Sorted(maps.Keys(known.resources)) {
		if known.resources[resource].scope == classes.VolumeScope {
			continue
		}
		for _, class := range known.resources[resource].classes {
			if extended, err := classes.ExtendedResource(resource, class); err == nil {
				texts = append(texts, fmt.Appendf(nil, deviceClass, deviceClassName(extended), extended, resource, class))
			}
		}
	}
	return Join(texts)
}

// notInNames matches what the name of an object cannot have.
var notInNames = regexp.MustCompile(`[^a-z0-9.-]|[.-]{2,}`)

// deviceClassName returns the name of the DeviceClass for an extended resource, e.g. rdt.gold for qos.noderesource.dev/rdt.gold. If a
// character has to be replaced, a digest keeps the name unique.
func deviceClassName(extended string) string {
	name := strings.ReplaceAll(strings.TrimPrefix(extended, classes.Domain+"/"), "/", ".")
	valid := notInNames.ReplaceAllString(strings.ToLower(name), "-")
	if valid == name {
		return name
	}
	sum := sha256.Sum256([]byte(extended))
	return valid + "-" + hex.EncodeToString(sum[:4])
}
