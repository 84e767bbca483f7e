// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node/claims"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/volumeio"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

func attributes(name string, parameters map[string]string) *storagev1.VolumeAttributesClass {
	class := &storagev1.VolumeAttributesClass{DriverName: "topolvm.io", Parameters: parameters}
	class.Name = name
	return class
}

func TestALimitAppliesToReadsAndToWrites(t *testing.T) {
	got := must.Get(LimitsOf(attributes("gold", map[string]string{"iops": "1k", "throughput": "100Mi"})))(t)
	want := nodeqosv1alpha1.VolumeClass{Name: "gold", VolumeLimits: qos.VolumeLimits{
		MaxReadBps: 100 << 20, MaxWriteBps: 100 << 20, MaxReadIops: 1000, MaxWriteIops: 1000,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
}

func TestWrongParametersAreErrors(t *testing.T) {
	for _, test := range []struct {
		name, class string
		parameters  map[string]string
		want        string
	}{
		{"an unknown parameter", "gold", map[string]string{"iops": "500", "iopz": "500"},
			`VolumeAttributesClass "gold" cannot be enforced: parameter "iopz" is unknown; the parameters are iops and throughput`},
		{"no quantity", "gold", map[string]string{"throughput": "fast"}, `parameter throughput: "fast" is not a quantity; write one like 500, 10M or 64Ki`},
		{"an exponent that is too large", "gold", map[string]string{"iops": "1e1000000000"}, `parameter iops: "1e1000000000" is not a quantity`},
		{"too small", "gold", map[string]string{"iops": "1"}, `parameter iops: "1" is too small; the minimum is 2`},
		{"negative", "gold", map[string]string{"iops": "-500"}, `"-500" is too small`},
		{"too many operations", "gold", map[string]string{"iops": "4294967295"}, `"4294967295" is too large; the maximum is 4294967294`},
		{"too many bytes", "gold", map[string]string{"throughput": "10E"}, `"10E" is too large`},
		{"no parameter", "gold", nil, "it sets no limit; set at least one of the parameters iops and throughput"},
		{"a long name", strings.Repeat("x", 64), map[string]string{"iops": "2"}, "its name must not be longer than 63 characters"},
		{"several problems are one line", "gold", map[string]string{"iops": "1", "type": "io2"}, `the minimum is 2; parameter "type" is unknown`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := LimitsOf(attributes(test.class, test.parameters))
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is %v\nwant %s", err, test.want)
			}
		})
	}
}

// FuzzLimits checks that the plugin accepts all limits that LimitsOf accepts.
func FuzzLimits(f *testing.F) {
	f.Add("500", "50Mi")
	f.Add("0.1", "1e18")
	f.Add("2", "9223372036854775806")
	f.Add("4294967294", "2")
	f.Fuzz(func(t *testing.T, iops, throughput string) {
		limits, err := LimitsOf(attributes("gold", map[string]string{"iops": iops, "throughput": throughput}))
		if err != nil {
			return
		}
		claimed := claims.Claims{Limits: map[string]qos.VolumeLimits{"gold": limits.VolumeLimits}}
		if _, err := claimed.Resource([]classes.Kind{volumeio.Kind(ioapply.New(ioapply.Options{}))}); err != nil {
			t.Errorf("iops %q and throughput %q result in %+v, which the node refuses: %v", iops, throughput, limits, err)
		}
	})
}
