// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

// Domain is the domain of this project's resources, annotations and API groups.
const Domain = "qos.noderesource.dev"

// ClaimResource is a resource of volume scope. Its classes are VolumeAttributesClasses that PersistentVolumeClaims name.
const ClaimResource = Domain + "/claim-io"

// These are the official resources of KEP-3008 ("Consts"). Both resources are in container scope.
const (
	RDTResource     = "k8s.io/rdt"
	BlockIOResource = "k8s.io/blockio"
)

// PodQOSResource is the KEP's name for the Pod QoS class as an informational resource, which Kubernetes manages ("Pass on Pod QoS class to
// the runtime"). Nodes do not offer it, and pods cannot request it.
const PodQOSResource = "pod-qos"

const (
	officialDomain = "k8s.io"
	// quotaPrefix precedes the name of an extended resource in a ResourceQuota. The name with this prefix must be a qualified name, too.
	quotaPrefix = "requests."
)

// CanonicalResource returns the KEP's name for the short names "rdt" and "blockio". It returns other names unchanged.
func CanonicalResource(name string) string {
	switch name {
	case "rdt":
		return RDTResource
	case "blockio":
		return BlockIOResource
	}
	return name
}

// ShortResource is the inverse of CanonicalResource.
func ShortResource(resource string) string {
	if resource != RDTResource && resource != BlockIOResource {
		return resource
	}
	return strings.TrimPrefix(resource, officialDomain+"/")
}

// ValidateResourceName returns an error if the name of a resource is invalid. The name must be a qualified Kubernetes name
// with a domain (KEP-3008, "API server"). Names without a domain are reserved for Kubernetes itself ("Consts").
func ValidateResourceName(name string) error {
	if err := qualified(name); err != nil {
		return err
	}
	domain, _, found := strings.Cut(name, "/")
	switch {
	case !found:
		return errors.New("names without a domain are reserved for Kubernetes; put a domain before the name, as in vendor.example/" + name)
	case domain == officialDomain && name != RDTResource && name != BlockIOResource:
		return fmt.Errorf("the domain k8s.io is reserved for official resources, which are %s and %s; use your own domain",
			RDTResource, BlockIOResource)
	}
	return nil
}

// ValidateClassName returns an error if the name of a class is invalid. The name must be a qualified Kubernetes name without a
// domain, and thus without a "/" (KEP-3008, "API server"). The name becomes part of a path, where a "/" is unsafe, and part
// of the name of an extended resource, where a second "/" is not allowed.
func ValidateClassName(name string) error {
	if strings.Contains(name, "/") {
		return errors.New(`must not contain "/"`)
	}
	return qualified(name)
}

func qualified(name string) error {
	if len(content.IsLabelKey(name)) == 0 {
		return nil
	}
	domain, rest, hasDomain := strings.Cut(name, "/")
	where := ` after "/"`
	if !hasDomain {
		rest, where = name, ""
	}

	switch {
	case hasDomain && len(content.IsDNS1123Subdomain(domain)) > 0:
		return errors.New(`the part before "/" must be a domain of at most 253 lower-case letters, digits, "-" and ".", like vendor.example`)
	case rest == "":
		return errors.New("must not be empty")
	case len(rest) > content.LabelValueMaxLength:
		return fmt.Errorf("must not be longer than %d characters%s", content.LabelValueMaxLength, where)
	}
	return fmt.Errorf(`must have only letters, digits, "-", "_" and ".", and begin and end with a letter or digit%s`, where)
}

// ExtendedResource returns the name of the extended resource whose quantity is the capacity of a class. An example is
// "qos.noderesource.dev/rdt.gold" for class "gold" of "k8s.io/rdt". The error is the reason why Kubernetes refuses the name.
func ExtendedResource(resource, class string) (string, error) {
	domain, name, found := strings.Cut(CanonicalResource(resource), "/")
	if !found {
		return "", fmt.Errorf("resource %s has no domain", quote(resource))
	}
	if domain == officialDomain {
		domain = Domain
	}
	extended := domain + "/" + name + "." + class
	if err := validateExtended(domain, extended); err != nil {
		return "", fmt.Errorf("extended resource %s: %w", clip(extended), err)
	}
	return extended, nil
}

// validateExtended applies the rules of the Kubernetes functions IsExtendedResourceName and ValidateResourceQuotaResourceName.
func validateExtended(domain, extended string) error {
	switch {
	case strings.HasPrefix(domain, quotaPrefix):
		return fmt.Errorf("Kubernetes allows no domain that begins with %q", quotaPrefix)
	case strings.HasSuffix(domain, "kubernetes.io"):
		return errors.New("the domain kubernetes.io is reserved for Kubernetes")
	case len(domain)+len(quotaPrefix) > content.DNS1123SubdomainMaxLength:
		return fmt.Errorf("the domain must not be longer than %d characters", content.DNS1123SubdomainMaxLength-len(quotaPrefix))
	}
	return qualified(extended)
}

// DeviceClass returns the name of the DeviceClass for an extended resource, e.g. rdt.gold for
// qos.noderesource.dev/rdt.gold. If a capital letter or "_" has to be replaced, a digest keeps the name unique. The
// admission policies for claims compute the beginning of the name in the same way.
func DeviceClass(extended string) (string, error) {
	name := strings.ReplaceAll(strings.TrimPrefix(extended, Domain+"/"), "/", ".")
	if valid := strings.ReplaceAll(strings.ToLower(name), "_", "-"); valid != name {
		sum := sha256.Sum256([]byte(extended))
		name = valid + "-" + hex.EncodeToString(sum[:4])
	}
	if len(content.IsDNS1123Subdomain(name)) > 0 {
		return "", fmt.Errorf("the name of the DeviceClass, %s, is not valid in Kubernetes", quote(name))
	}
	return name, nil
}
