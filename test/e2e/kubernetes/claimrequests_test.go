// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"strings"
	"testing"
)

// requestsPage has the examples of the tests below.
const requestsPage = "../../../docs/storage/kep-3751.md"

// The examples of requestsPage in YAML.
const (
	exampleClasses = iota
	exampleRequests
	exampleLimitRange
	exampleSums
)

// requests creates claims that request iops, as in KEP-3751's first revision.
func (c *claims) requests(t *testing.T) {
	t.Helper()
	for what, object := range map[string]string{
		"a LimitRange": `{apiVersion: v1, kind: LimitRange, metadata: {name: io}, spec: {limits: [{type: PersistentVolumeClaim, max: {iops: 1k}}]}}`,
		"a quota":      `{apiVersion: v1, kind: ResourceQuota, metadata: {name: io}, spec: {hard: {requests.iops: 1k}}}`,
	} {
		wantRefusal(t, what+" of iops", "must be a standard resource")(c.tryWith(object, "create", "--dry-run=server", "-f", "-"))
	}

	examples := blocksOf(t, requestsPage, "yaml")
	c.apply(t, examples[exampleClasses])
	c.bindClaim(t, "requesting", "requested", examples[exampleRequests])
	c.script(t, blocksOf(t, requestsPage, "sh")[0])
	if output, err := c.try("patch", "pvc", "requesting", "-p", `{"spec":{"resources":{"requests":{"iops":"500"}}}}`); err == nil {
		t.Errorf("the API server accepts a change of the requests: %s", output)
	}

	c.bindClaim(t, "disk-6", "disks", requesting("disk-6", "disks", "iops: 1k")) // its StorageClass does not honour requests
	c.has(t, "disk-6", "silver")
	c.bindClaim(t, "disk-7", "requested", requesting("disk-7", "requested", "iops: 700"))
	c.reported(t, "disk-7", "no VolumeAttributesClass has what the claim requests (iops: 700); name one of these: bronze, gold, silver")
	c.has(t, "disk-7", "")
}

// requesting returns a claim with a request.
func requesting(name, class, request string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s},
  spec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi, %s}}}}`, name, class, request)
}

// bounds installs the policies for requests, and creates claims in a namespace with the LimitRange of the page: at least
// 100 iops, at most 1k iops and a throughput of 100Mi, and defaults for claims that name no class.
func (c *claims) bounds(t *testing.T) {
	t.Helper()
	const policies = deploy + "storage-requests-policy"
	c.kubectl(t, "apply", "-k", policies)
	t.Cleanup(func() { c.kubectl(t, "delete", "-k", policies, "--ignore-not-found") })
	c.namespace(t, "bounds", blocksOf(t, requestsPage, "yaml")[exampleLimitRange])
	untilRefused(t, "the policies act", "LimitRange io allows claims to request at least iops=100",
		func() (string, error) { return c.create(requesting("late", "requested", "iops: 99")) })

	for name, test := range map[string]struct{ claim, want string }{
		"no request and no class":        {namedClaim("new", ""), "iops:250 storage:16Mi throughput:25Mi"},
		"a class":                        {namedClaim("new", "volumeAttributesClassName: gold,"), "storage:16Mi"},
		"the maximum":                    {requesting("new", "requested", "iops: 1000"), "iops:1k storage:16Mi"},
		"above the maximum":              {requesting("new", "requested", "iops: 1001"), "LimitRange io allows claims to request at most iops=1k"},
		"a throughput above the maximum": {requesting("new", "requested", "throughput: 1Gi"), "LimitRange io allows claims to request at most throughput=100Mi"},
		"a fraction":                     {requesting("new", "requested", "iops: 500m"), "write the requests of iops and throughput without exponents and fractions"},
		"an exponent":                    {requesting("new", "requested", `iops: "1e3"`), "write the requests of iops and throughput without exponents and fractions"},
	} {
		if output, _ := c.create(test.claim); !strings.Contains(output, test.want) {
			t.Errorf("%s: %s, want %s", name, output, test.want)
		}
	}

	for _, key := range []string{"min", "max", "default"} {
		const mistake = "qos.noderesource.dev/%s-claim-requests"
		wantRefusal(t, "a mistake in the bounds", fmt.Sprintf("the annotation "+mistake+" is not of the form iops=1000,throughput=100Mi", key))(
			c.try("-n", "bounds", "annotate", "--overwrite", "limitrange", "io", fmt.Sprintf(mistake+"=iops=250, iops=1e3", key)))
	}
	c.kubectl(t, "delete", "validatingadmissionpolicybinding", "qos-claim-requests-of-limit-ranges")
	untilDone(t, "a LimitRange may have a mistake", func() (string, error) {
		return c.try("-n", "bounds", "annotate", "--overwrite", "limitrange", "io", "qos.noderesource.dev/max-claim-requests=iops=1e3")
	})
	untilRefused(t, "a mistake refuses claims with requests", `"iops=1e3" in the annotation qos.noderesource.dev/min-claim-requests or max-claim-requests is not of the form`,
		func() (string, error) { return c.create(requesting("new", "requested", "iops: 200")) })
	if output, err := c.create(namedClaim("new", "volumeAttributesClassName: gold,")); err != nil {
		t.Errorf("a claim without requests is refused: %s", output)
	}
}

// create asks the API server whether it accepts a claim in the namespace bounds, and returns the requests of the claim, or the refusal.
func (c *claims) create(claim string) (output string, err error) {
	return c.tryWith(claim, "-n", "bounds", "create", "--dry-run=server", "-f", "-", "-o",
		`go-template={{range $name, $value := .spec.resources.requests}}{{$name}}:{{$value}} {{end}}`)
}

// sums creates claims in a namespace with the quotas of the page, which bound the sum of the limits of their classes.
func (c *claims) sums(t *testing.T) {
	t.Helper()
	c.namespace(t, "sums", blocksOf(t, requestsPage, "yaml")[exampleSums])
	c.awaitField(t, "the quotas are in force", "0 0 0 0", "{.items[*].status.used.persistentvolumeclaims}", "-n", "sums", "resourcequota")
	// `quota` refuses the claim. It is empty if the claim is accepted: two claims of bronze, one of silver, none of
	// another class, and one without a class.
	for _, test := range []struct{ class, quota string }{
		{"bronze", ""}, {"bronze", ""}, {"bronze", "bronze"}, {"silver", ""}, {"silver", "silver"},
		{"gold", "other-classes"}, {"", ""}, {"", "no-class"},
	} {
		claim := strings.Replace(namedClaim("", fmt.Sprintf("volumeAttributesClassName: %q,", test.class)), "{name: }", "{generateName: sum-}", 1)
		output, err := c.tryWith(claim, "-n", "sums", "create", "-f", "-")
		refused := strings.Contains(output, "exceeded quota: "+test.quota+",")
		if (err != nil) != (test.quota != "") || err != nil && !refused {
			t.Errorf("the creation of a claim of the class %q returned %s, want a refusal by quota %q (none if empty)", test.class, output, test.quota)
		}
	}
}
