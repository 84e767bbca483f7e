// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/qos-nri/qos-nri-plugin/internal/convert"
)

// pvc returns the manifest of a claim. The arguments are lines for the claim's spec, and for its resources, in flow style.
func pvc(spec, resources string) string {
	return "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec:\n" + spec + "  resources: " + resources + "\n"
}

// volumeClass returns the manifest of a VolumeAttributesClass of the driver testDriver.
func volumeClass(name string, parameters ...string) string {
	return "apiVersion: storage.k8s.io/v1\nkind: VolumeAttributesClass\nmetadata:\n  name: " + name + "\ndriverName: topolvm.io\nparameters:\n  " +
		strings.Join(parameters, "\n  ") + "\n"
}

const (
	askIOPS   = "{requests: {storage: 1Gi, iops: 500}}"
	askNone   = "{requests: {storage: 1Gi}}"
	className = "iops-500-topolvm-io"
)

func TestProblemsOfClaimsHavePlaceAndRemedy(t *testing.T) {
	const at = "a.yaml:5: PersistentVolumeClaim data: spec.resources.requests"
	for _, test := range []struct{ name, text, want string }{
		{"limits", pvc("", "{limits: {iops: 500}}"), "a.yaml:5: PersistentVolumeClaim data: spec.resources.limits.iops: " +
			"a claim has no such limit, because KEP-3751 limits a volume by the requests of its claim; move iops to the requests"},
		{"limits besides requests", pvc("", "{limits: {throughput: 5M}, requests: {iops: 500}}"), "a.yaml:5: PersistentVolumeClaim data: spec.resources.limits.throughput: " +
			"a claim has no such limit, because KEP-3751 limits a volume by the requests of its claim; move throughput to the requests"},
		{"a class besides requests", pvc("  volumeAttributesClassName: gold\n", askIOPS), "a.yaml:5: PersistentVolumeClaim data: spec.volumeAttributesClassName: " +
			`is "gold", but the claim also requests iops or throughput; keep one of them`},
		{"a text that is no quantity", pvc("", "{requests: {iops: many}}"), at + `.iops: "many" is not a quantity; write one like 500, 10M or 64Ki`},
		{"zero", pvc("", "{requests: {iops: 0}}"), at + `.iops: "0" is too small; the minimum is 2`},
		{"one", pvc("", "{requests: {throughput: '1'}}"), at + `.throughput: "1" is too small; the minimum is 2`},
		{"less than zero", pvc("", "{requests: {throughput: -5M}}"), at + `.throughput: "-5M" is too small; the minimum is 2`},
		{"too many operations", pvc("", "{requests: {iops: 5G}}"), at + `.iops: "5G" is too large; the maximum is 4294967294`},
		{"too many bytes", pvc("", "{requests: {throughput: 100E}}"), at + `.throughput: "100E" is too large; the maximum is 9223372036854775806`},
		{"a mapping", pvc("", "{requests: {iops: {read: 1}}}"), at + `.iops: must be a quantity like 500, 10M or 64Ki, not a mapping`},
		{"no value", pvc("", "{requests: {iops: }}"), at + `.iops: must be a quantity like 500, 10M or 64Ki, not empty`},
		{"a request twice", pvc("", "{requests: {iops: 5, iops: 6}}"), at + `.iops: is defined twice; remove one of them`},
		{"a request by a merge key", pvc("", "{requests: {<<: {iops: 5}}}"),
			"a.yaml:5: PersistentVolumeClaim data: spec.resources.requests.iops: is set by the merge key <<; write the field here instead"},
		{"requests that are no mapping, in a text with the field iops", pvc("", "{requests: [iops]}\n  x: {iops: 1}"), at + `: must be a mapping, not a list`},
		{"another class with the same name", pvc("", askIOPS) + "---\n" + volumeClass(className, "iops: 400"), at +
			": needs a VolumeAttributesClass named " + className + ", but the input has one with this name and other values; rename the one in the input"},
		{"a class with the same name and another parameter", pvc("", askIOPS) + "---\n" + volumeClass(className, "iops: 500", "type: 1"), at +
			": needs a VolumeAttributesClass named " + className + ", but the input has one with this name and other values; rename the one in the input"},
		{"a claim template of a StatefulSet", "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec:\n  volumeClaimTemplates:\n  - spec: {resources: {requests: {iops: 1}}}\n",
			`a.yaml:6: StatefulSet db: spec.volumeClaimTemplates[0].spec.resources.requests.iops: "1" is too small; the minimum is 2`},
	} {
		t.Run(test.name, func(t *testing.T) { wantProblems(t, test.text, toLimits(), test.want) })
	}
}

func TestTheDriverOfAClaimMustBeKnown(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"without a StorageClass", pvc("", askIOPS), "a.yaml:5: PersistentVolumeClaim data: spec.resources.requests: " +
			"the driver of the volume is unknown, because the claim names no StorageClass; pass --driver NAME"},
		{"with a StorageClass elsewhere", pvc("  storageClassName: fast\n", askIOPS), "a.yaml:5: PersistentVolumeClaim data: spec.storageClassName: " +
			`the driver of the volume is unknown, because StorageClass "fast" is not in the input; add the StorageClass, or pass --driver NAME`},
		{"no problem without requests", pvc("", askNone), ""},
	} {
		t.Run(test.name, func(t *testing.T) { wantProblems(t, test.text, convert.Options{}, test.want) })
	}
}

func TestConvertPrintsNotesAboutClaims(t *testing.T) {
	const listed = className + " limits volumes only if --drivers of qos-storage lists topolvm.io; if this driver has the capability MODIFY_VOLUME, convert with --modify-volume instead"
	const patch = ` -p '{"spec":{"volumeAttributesClassName":"` + className + `"}}'`
	const state = " names no class, because a claim with a class gets no new volume of a driver without MODIFY_VOLUME"
	const claimNote = state + "; when the claim is bound, run: kubectl patch pvc "
	const templateNote = state + "; for each claim, when it is bound, run: kubectl patch pvc "
	const byDefault = "; or set the class for new claims in the annotation qos.noderesource.dev/default-volume-attributes-class of their StorageClass"
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"with the command for the claim", pvc("", askIOPS), []string{listed, "PersistentVolumeClaim data" + claimNote + "data" + patch}},
		{"with its namespace", strings.Replace(pvc("", askIOPS), "name: data", "name: data, namespace: shop", 1),
			[]string{listed, "PersistentVolumeClaim data" + claimNote + "data -n shop" + patch}},
		{"for the claims of a StatefulSet",
			"apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec: {volumeClaimTemplates: [{metadata: {name: data}, spec: {resources: " + askIOPS + "}}]}\n",
			[]string{listed, "StatefulSet db: spec.volumeClaimTemplates[0]" + templateNote + "data-db-ORDINAL" + patch + byDefault}},
		{"for the claims of another kind",
			"apiVersion: example.org/v1\nkind: Database\nmetadata: {name: db}\nspec: {volumeClaimTemplate: {spec: {resources: " + askIOPS + "}}}\n",
			[]string{listed, "Database db: spec.volumeClaimTemplate" + templateNote + "NAME" + patch + byDefault}},
		{"for the ephemeral volume of a pod",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {volumes: [{name: tmp, ephemeral: {volumeClaimTemplate: {spec: {resources: " + askIOPS + "}}}}]}\n",
			[]string{listed, "Pod web: spec.volumes[0].ephemeral.volumeClaimTemplate" + claimNote + "web-tmp" + patch}},
		{"for the ephemeral volumes of a workload",
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n" +
				"spec: {template: {spec: {volumes: [{name: tmp, ephemeral: {volumeClaimTemplate: {spec: {resources: " + askIOPS + "}}}}]}}}\n",
			[]string{listed, "Deployment web: spec.template.spec.volumes[0].ephemeral.volumeClaimTemplate" + templateNote + "POD-tmp" + patch + byDefault}},
		{"no note if nothing is converted", pvc("", askNone), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			result := mustConvert(t, test.text, toLimits())
			if diff := cmp.Diff(test.want, result.Notes); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClaimsOfDriversWithModifyVolumeNameTheirClass(t *testing.T) {
	text := pvc("  volumeAttributesClassName: ''\n", askIOPS) + "---\n" + pvc("", askIOPS)
	want := pvc("  volumeAttributesClassName: '"+className+"'\n", askNone) + "---\n" + volumeClass(className, `iops: "500"`) +
		"---\n" + pvc("", askNone) + "  volumeAttributesClassName: " + className + "\n"
	options := convert.Options{Driver: testDriver, ModifyVolume: true}
	wantResult(t, text, options, want, "driver topolvm.io must support MODIFY_VOLUME and the parameters of "+className+
		"; drivers define the names and units of their parameters themselves")
	wantResult(t, want, options, want) // a second conversion changes nothing
}

// TestFilesShareStorageClassesAndVolumeAttributesClasses takes the driver from the StorageClass in c.yaml, not from the option.
// The VolumeAttributesClass is added to the first file that needs it. The file template.yaml is not YAML, and stays as it is.
func TestFilesShareStorageClassesAndVolumeAttributesClasses(t *testing.T) {
	claim := pvc("  storageClassName: fast\n", askIOPS)
	inputs := []convert.Input{
		{Name: "a.yaml", Text: []byte(claim)},
		{Name: "b.yaml", Text: []byte(claim)},
		{Name: "template.yaml", Text: []byte("# storage.k8s.io\n{{ template }}: [\n")},
		{Name: "c.yaml", Text: []byte("kind: List\nitems:\n- apiVersion: storage.k8s.io/v1\n  kind: StorageClass\n  metadata: {name: fast}\n  provisioner: topolvm.io\n")},
	}
	results, err := convert.Convert(inputs, convert.Options{Driver: "other.example"})
	if err != nil {
		t.Fatal(err)
	}
	converted := pvc("  storageClassName: fast\n", askNone)
	want := []string{converted + "---\n" + volumeClass(className, `iops: "500"`), converted, string(inputs[2].Text), string(inputs[3].Text)}
	for i, result := range results {
		if diff := cmp.Diff(want[i], string(result.Text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", inputs[i].Name, diff)
		}
	}
}

func TestNamesOfVolumeAttributesClassesAreValid(t *testing.T) {
	for _, test := range []struct{ name, requests, driver, want string }{
		{"of operations, rounded up", "iops: 2500m", "topolvm.io", "iops-3-topolvm-io"},
		{"of both limits", "throughput: 50Mi, iops: 1k", "topolvm.io", "iops-1000-throughput-50mi-topolvm-io"},
		{"of decimal bytes", "throughput: 50M", "Disk.Example", "throughput-50m-disk-example"},
		{"of bytes that are no multiple of a unit", "throughput: 1000001", "kubernetes.io/no-provisioner", "throughput-1000001-kubernetes-io-no-provisioner"},
		{"of a long driver", "iops: 4294967294, throughput: 9223372036854775806", "rook-ceph.rbd.csi.ceph.com",
			"iops-4294967294-throughput-9223372036854775806-rook-ce-d6bd87c7"},
	} {
		t.Run(test.name, func(t *testing.T) {
			result := mustConvert(t, pvc("", "{requests: {"+test.requests+"}}"), convert.Options{Driver: test.driver})
			_, name, _ := strings.Cut(string(result.Text), "VolumeAttributesClass\nmetadata:\n  name: ")
			name, _, _ = strings.Cut(name, "\n")
			if errs := content.IsDNS1123Label(name); name != test.want || len(errs) > 0 {
				t.Errorf("the name is %s (problems: %q), want %s", name, errs, test.want)
			}
		})
	}
}

// claim returns a random claim.
func (a *author) claim() []pair {
	requests := a.some(pair{"storage", "1Gi"})
	if a.chance(80) {
		requests = append(requests, pair{"iops", fmt.Sprint(2 + a.IntN(3))})
	}
	if a.chance(50) {
		requests = append(requests, pair{"throughput", "64Ki"})
	}
	resources := a.shuffled([]pair{{"requests", a.shuffled(requests)}, {"limits", a.some(pair{"storage", "2Gi"})}})
	spec := a.shuffled([]pair{{"accessModes", []any{"ReadWriteOnce"}}, {"resources", resources}, {"volumeMode", "Filesystem"}})
	if a.chance(40) {
		templates := []any{a.shuffled([]pair{{"metadata", []pair{{"name", "data"}}}, {"spec", spec}})}
		return []pair{{"apiVersion", "apps/v1"}, {"kind", "StatefulSet"}, {"spec", a.shuffled([]pair{{"volumeClaimTemplates", templates}, {"replicas", "x"}})}}
	}
	return a.shuffled([]pair{{"apiVersion", "v1"}, {"kind", "PersistentVolumeClaim"}, {"metadata", []pair{{"name", "data"}}}, {"spec", spec}})
}

func TestClaimsInAllYAMLStylesAreConverted(t *testing.T) {
	for seed := range uint64(300) {
		text, notes := generate(seed, (*author).claim)
		for _, options := range []convert.Options{{Driver: testDriver}, {Driver: testDriver, ModifyVolume: true}} {
			result := mustConvert(t, text, options)
			checkGenerated(t, seed, text, string(result.Text), notes)
			wantProblems(t, string(result.Text), convert.Options{}, "") // the driver is unknown, so each request that is left is a problem
			if t.Failed() {
				return
			}
		}
	}
}
