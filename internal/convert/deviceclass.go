// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"maps"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// deviceClass is the DeviceClass of a class. The limits of a pod request the class by the extendedResourceName of the
// DeviceClass. The API server limits the cost of the expression, so the expression has no optionals. It needs none,
// because each device of the driver has both attributes.
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

// DeviceClasses returns a DeviceClass for each class, as YAML documents. It leaves out classes that can have no extended resource or no
// DeviceClass.
func DeviceClasses(known Known) []byte {
	var texts [][]byte
	for _, resource := range slices.Sorted(maps.Keys(known.resources)) {
		if known.resources[resource].scope == classes.VolumeScope {
			continue
		}
		for _, class := range known.resources[resource].classes {
			extended, err := classes.ExtendedResource(resource, class)
			if err != nil {
				continue
			}
			if name, err := classes.DeviceClass(extended); err == nil {
				texts = append(texts, fmt.Appendf(nil, deviceClass, name, extended, resource, class))
			}
		}
	}
	return Join(texts)
}
