// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

const kepClaim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  storageClassName: fast
  resources: {requests: {storage: 1Gi, iops: 500}}
`

const fastClass = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: disk.example
`

// stockClaim returns the result of the conversion of kepClaim. `driver` is the name of the driver, with "-" instead of ".".
func stockClaim(driver, classOfClaim string) string {
	return strings.Replace(kepClaim, ", iops: 500", "", 1) + classOfClaim + `---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata:
  name: iops-500-` + driver + `
driverName: ` + strings.ReplaceAll(driver, "-", ".") + `
parameters:
  iops: "500"
`
}

func TestConvertTurnsRequestsOfClaimsIntoClasses(t *testing.T) {
	for _, test := range []struct {
		name string
		run  fileRun
		want answer
	}{
		{
			"with the driver of the command line, and a note with the command for the claim",
			fileRun{stdin: strings.NewReader(kepClaim), args: []string{"convert", "--driver", "topolvm.io"}},
			answer{0, stockClaim("topolvm-io", ""), "note: iops-500-topolvm-io limits volumes only if --drivers of qos-storage lists topolvm.io; " +
				"if this driver has the capability MODIFY_VOLUME, convert with --modify-volume instead\n" +
				"note: PersistentVolumeClaim data names no class, because a claim with a class gets no new volume of a driver without MODIFY_VOLUME; " +
				`when the claim is bound, run: kubectl patch pvc data -p '{"spec":{"volumeAttributesClassName":"iops-500-topolvm-io"}}'` + "\n"},
		},
		{
			"with the class in the claim, if the driver can modify volumes",
			fileRun{stdin: strings.NewReader(kepClaim), args: []string{"convert", "-q", "--driver", "topolvm.io", "--modify-volume"}},
			answer{0, stockClaim("topolvm-io", "  volumeAttributesClassName: iops-500-topolvm-io\n"), ""},
		},
		{
			"with the driver of a StorageClass in another file",
			fileRun{
				files: map[string]string{"a.yaml": kepClaim, "b.yaml": fastClass},
				args:  []string{"convert", "-q", "--driver", "topolvm.io", "DIR"},
			},
			answer{0, stockClaim("disk-example", "") + "---\n" + fastClass, ""},
		},
		{
			"an error for an invalid name of a driver",
			fileRun{args: []string{"convert", "--driver", "a b", "-"}},
			answer{program.ExitUsage, "", "Error: usage: --driver \"a b\" is not the name of a driver; write one like topolvm.io; " +
				"see \"kubectl qos convert --help\"\n"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := test.run.run(t)
			wantAnswer(t, test.want, got)
		})
	}
}

func TestConvertWritesClaimsOnRequest(t *testing.T) {
	const claims = `spec: {containers: [{resources: {claims: [{name: rdt}]}}], resourceClaims: [{name: rdt, resourceClaimTemplateName: rdt.gold}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: rdt.gold
spec:
  spec:
    devices:
      requests:
      - name: class
        exactly:
          deviceClassName: rdt.gold
`
	got, _ := fileRun{files: map[string]string{"a.yaml": oneRDT, "b.yaml": oneRDT}, args: []string{"convert", "--claims", "DIR"}}.run(t)
	// Both pods request the same class, so the template and the note are written only once.
	pod, _, _ := strings.Cut(claims, "---\n")
	wantAnswer(t, answer{0, claims + "---\n" + pod, "note: claims need a DeviceClass for each class; run: kubectl qos device-classes | kubectl apply -f -\n"}, got)
}
