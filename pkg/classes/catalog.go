// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

// Scope says to what a class of a resource is assigned. A resource has one scope.
type Scope string

const (
	// ContainerScope is that of resources with a class for each container.
	ContainerScope Scope = "container"
	// PodScope is that of resources with one class for the whole pod.
	PodScope Scope = "pod"
)

// SystemDefault is the class of whatever no class is enforced on (KEP-3008, "Implicit defaults").
const SystemDefault = ""

// Removal says what becomes of what has asked for a class, and has it, when the class is removed from the class files.
type Removal string

const (
	// Drain lets it keep the class until it ends. It is what an empty Removal means.
	Drain Removal = "drain"
	// Evict has its pod evicted.
	Evict Removal = "evict"
)

// Class is one class of a resource.
type Class struct {
	Name string
	// Capacity is the most simultaneous assignments on this node; 0 is unlimited.
	Capacity    uint64
	Description string
}

// Resource is one type of QoS with its classes, as it is offered on this node.
type Resource struct {
	// Name is qualified, e.g. "k8s.io/rdt".
	Name  string
	Scope Scope
	// Mutable says whether the class of something that runs can be changed.
	Mutable bool
	// DefaultClass is given to what asks for nothing; SystemDefault without one.
	DefaultClass string
	// OnClassRemoved is about what asked for its class; what has the default follows the default.
	OnClassRemoved Removal
	// Classes are in the order of the class file.
	Classes []Class
}
