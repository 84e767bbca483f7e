// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storage gives volumes the limits of the VolumeAttributesClasses of their claims. It writes the limits of each
// node's volumes to the node's NodeQOSResources object.
package storage

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// These are the parameters of a VolumeAttributesClass. Each limit applies separately to reads and to writes. KEP-3751's first revision
// gives the requests of claims the same names.
const (
	// parameterIOPS limits the operations a second.
	parameterIOPS = "iops"
	// parameterThroughput limits the bytes a second.
	parameterThroughput = "throughput"
)

// Requested returns the requests of a claim for iops and throughput, or nil if there are none.
func Requested(claim *corev1.PersistentVolumeClaim) (requested corev1.ResourceList) {
	for _, name := range []corev1.ResourceName{parameterIOPS, parameterThroughput} {
		if quantity, ok := claim.Spec.Resources.Requests[name]; ok {
			if requested == nil {
				requested = corev1.ResourceList{}
			}
			requested[name] = quantity
		}
	}
	return requested
}

// minLimit is the smallest limit that the kernel accepts in cgroup v2 (block/blk-throttle.c, tg_set_limit).
const minLimit = 2

// LimitsOf returns the limits of a VolumeAttributesClass. The error joins all problems of its parameters.
func LimitsOf(class *storagev1.VolumeAttributesClass) (nodeqosv1alpha1.VolumeClass, error) {
	limits, err := ParseLimits(class.Parameters)
	if nameErr := classes.ValidateClassName(class.Name); nameErr != nil {
		err = errors.Join(fmt.Errorf("its name %w", nameErr), err)
	}
	if err != nil {
		return nodeqosv1alpha1.VolumeClass{}, fmt.Errorf("VolumeAttributesClass %q cannot be enforced: %s", class.Name, oneLine(err))
	}
	return nodeqosv1alpha1.VolumeClass{Name: class.Name, VolumeLimits: limits}, nil
}

// ParseLimits returns the limits in the parameters of a VolumeAttributesClass. The error joins all problems.
func ParseLimits(parameters map[string]string) (limits qos.VolumeLimits, _ error) {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		var err error
		switch value := parameters[key]; key {
		case parameterIOPS:
			limits.MaxReadIops, err = parse(key, value, math.MaxUint32-1)
			limits.MaxWriteIops = limits.MaxReadIops
		case parameterThroughput:
			limits.MaxReadBps, err = parse(key, value, math.MaxInt64-1)
			limits.MaxWriteBps = limits.MaxReadBps
		default:
			err = fmt.Errorf("parameter %q is unknown; the parameters are %s and %s", key, parameterIOPS, parameterThroughput)
		}
		errs = append(errs, err)
	}
	if len(parameters) == 0 {
		errs = append(errs, fmt.Errorf("it sets no limit; set at least one of the parameters %s and %s", parameterIOPS, parameterThroughput))
	}
	return limits, errors.Join(errs...)
}

// largeExponent matches quantities that take seconds or hours to compare, such as 1e10000000. Users can request them in claims.
var largeExponent = regexp.MustCompile(`[eE][+-]?[0-9.]{3,}$`)

// parse reads a Kubernetes quantity and rounds it up to a whole number.
func parse(key, text string, most int64) (int64, error) {
	var quantity resource.Quantity
	invalid := largeExponent.MatchString(text)
	if !invalid {
		var err error
		quantity, err = resource.ParseQuantity(text)
		invalid = err != nil
	}
	switch {
	case invalid:
		return 0, fmt.Errorf("parameter %s: %q is not a quantity; write one like 500, 10M or 64Ki", key, text)
	case quantity.CmpInt64(minLimit) < 0:
		return 0, fmt.Errorf("parameter %s: %q is too small; the minimum is %d", key, text, minLimit)
	case quantity.CmpInt64(most) > 0:
		return 0, fmt.Errorf("parameter %s: %q is too large; the maximum is %d", key, text, most)
	}
	return quantity.Value(), nil
}
