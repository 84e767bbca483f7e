// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"encoding/hex"
	"hash/fnv"
	"maps"
	"strings"
)

// CDIKind is the vendor and the class of CDI devices (Container Device Interface). Each of these devices stands for a
// QoS class that a ResourceClaim has allocated. The kubelet passes the names of the devices to the runtime separately
// from the container's specification, so users cannot write them.
const CDIKind = Domain + "/class"

// DRASocket is the name of the socket of a DRA driver that offers the classes of its node. The driver creates it in the directory
// plugins/qos.noderesource.dev of the kubelet. While the driver serves it, the device plugins register no classes.
const DRASocket = "dra.sock"

// A name of a CDI device has only letters, digits, "_", "-", "." and ":". Names of resources and classes have no ":", so these texts
// replace the characters that CDI does not allow.
const (
	cdiDomainEnd   = ":"  // the "/" after the domain of a resource
	cdiResourceEnd = "::" // the "=" between a resource and a class
)

// CDIVariable is the beginning of the environment variable that each CDI device sets. The variable shows that the runtime has used the
// device, even if the runtime does not report CDI devices to NRI plugins.
const CDIVariable = "QOS_NODERESOURCE_DEV_"

// CDIName returns the name of the CDI device of a class, without CDIKind, e.g. "k8s.io:rdt::gold".
func CDIName(p Pair) string {
	return strings.Replace(p.Resource, "/", cdiDomainEnd, 1) + cdiResourceEnd + p.Class
}

// CDIDevice returns the qualified name of the CDI device of a class, e.g. "qos.noderesource.dev/class=k8s.io:rdt::gold".
func CDIDevice(p Pair) string { return CDIKind + "=" + CDIName(p) }

// ParseCDIDevice is the inverse of CDIDevice. It returns false for devices of other kinds.
func ParseCDIDevice(device string) (p Pair, ours bool) {
	name, ours := strings.CutPrefix(device, CDIKind+"=")
	if !ours {
		return Pair{}, false
	}
	resource, class, _ := strings.Cut(name, cdiResourceEnd)
	return Pair{strings.Replace(resource, cdiDomainEnd, "/", 1), class}, true
}

// CDIEnvironment returns the environment variable that the CDI device of a class sets. Each class has a variable of its own.
func CDIEnvironment(p Pair) string {
	request := p.Resource + "=" + p.Class
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(request)) // never fails
	return CDIVariable + strings.ToUpper(hex.EncodeToString(sum.Sum(nil))) + "=" + request
}

// AllocatedByClaim reports whether the key of an annotation is one that WithDevices adds, for a class that a ResourceClaim has allocated. It
// is false for the annotations of device plugins.
func AllocatedByClaim(key string) bool {
	name, allocated := strings.CutPrefix(key, AllocatedKeyPrefix)
	return allocated && strings.Contains(name, cdiResourceEnd)
}

// WithDevices returns the annotations of a container, and an annotation for each class that CDI devices allocate to the container, as if
// the kubelet had set it. It does not change the parameter `annotations`.
func WithDevices(annotations map[string]string, devices []string) map[string]string {
	if len(devices) == 0 {
		return annotations
	}
	all := map[string]string{}
	maps.Copy(all, annotations)
	for _, device := range devices {
		if p, ours := ParseCDIDevice(device); ours {
			all[AllocatedKeyPrefix+CDIName(p)] = p.Resource + "=" + p.Class
		}
	}
	return all
}

// CheckDevices returns an error if the environment of a new container shows a class that no CDI device allocates to it. Either the runtime
// does not report CDI devices to NRI plugins, so the container would run without its class, or a user has set the variable.
func (h Holder) CheckDevices(env []string) error {
	for _, variable := range env {
		if !strings.HasPrefix(variable, CDIVariable) {
			continue
		}
		name, request, _ := strings.Cut(variable, "=")
		resource, class, _ := strings.Cut(request, "=")
		if _, reported := h.ContainerAnnotations[AllocatedKeyPrefix+CDIName(Pair{resource, class})]; !reported {
			return refuseHolder(h, badRequest("the environment variable %s shows a class that is not allocated to the container; if the pod sets it, "+
				"remove it; if the DRA driver sets it, the runtime is too old for classes by DRA: use containerd 2.3 or later", quote(name)))
		}
	}
	return nil
}
