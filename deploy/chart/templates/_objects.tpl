{{- /*
The chart has no copies of the manifests: its directory files/ has symbolic links to the directories of deploy/. The templates read
the manifests, and change in them what the values set. test/chart compares the result with that of kustomize.
*/}}

{{- /* qos.objects returns the objects of .file as {"items": […]}. "qos-system" becomes the namespace of the release. */}}
{{- define "qos.objects" }}
{{- $missing := printf "the chart has no files/%s: the symbolic links of deploy/chart/files are missing; check the repository out with them, or install a packaged chart" .file }}
{{- $text := .root.Files.Get (printf "files/%s" .file) | required $missing | replace "qos-system" .root.Release.Namespace }}
{{- $objects := list }}
{{- range regexSplit "(?m)^---$" $text -1 }}
{{- $object := fromYaml . }}
{{- with $object.Error }}{{ fail (printf "files/%s: %s" $.file .) }}{{ end }}
{{- if $object }}{{ $objects = append $objects $object }}{{ end }}
{{- end }}
{{- dict "items" $objects | toJson }}
{{- end }}

{{- /* qos.print prints .object, with its namespace and the labels of the values. */}}
{{- define "qos.print" }}
{{- if not (regexMatch "^(Cluster|CustomResource)|AdmissionPolicy" .object.kind) }}
{{- $_ := set .object.metadata "namespace" .root.Release.Namespace }}
{{- end }}
{{- with .root.Values.labels }}
{{- $_ := set $.object.metadata "labels" (merge (dict) ($.object.metadata.labels | default dict) .) }}
{{- end }}
---
{{ toYaml .object }}
{{ end }}

{{- /* qos.file prints all objects of .file. */}}
{{- define "qos.file" }}
{{- range (include "qos.objects" . | fromJson).items }}
{{- include "qos.print" (dict "root" $.root "object" .) }}
{{- end }}
{{- end }}

{{- /* qos.crd prints the CRD of .file. Helm keeps it when the release is uninstalled, if the values say so. */}}
{{- define "qos.crd" }}
{{- range (include "qos.objects" . | fromJson).items }}
{{- if $.root.Values.crds.keep }}
{{- $_ := set .metadata "annotations" (merge (dict "helm.sh/resource-policy" "keep") (.metadata.annotations | default dict)) }}
{{- end }}
{{- include "qos.print" (dict "root" $.root "object" .) }}
{{- end }}
{{- end }}

{{- /* qos.image returns the reference of .image. Its tag is .tag if the values have neither tag nor digest. */}}
{{- define "qos.image" }}
{{- if .image.digest }}{{ .image.repository }}@{{ .image.digest }}
{{- else }}{{ .image.repository }}:{{ .image.tag | default .tag }}
{{- end }}
{{- end }}

{{- /* qos.schedule changes where the pods of the DaemonSet .object run, and their labels and pull secrets. */}}
{{- define "qos.schedule" }}
{{- $values := .root.Values }}
{{- $pod := .object.spec.template }}
{{- $_ := set $pod.spec "nodeSelector" (merge (dict) $pod.spec.nodeSelector $values.nodeSelector) }}
{{- $_ = set $pod.spec "tolerations" $values.tolerations }}
{{- with $values.imagePullSecrets }}{{ $_ = set $pod.spec "imagePullSecrets" . }}{{ end }}
{{- $_ = set $pod.metadata "labels" (merge (dict) $pod.metadata.labels $values.podLabels $values.labels) }}
{{- with $values.podAnnotations }}
{{- $_ = set $pod.metadata "annotations" (merge (dict) ($pod.metadata.annotations | default dict) .) }}
{{- end }}
{{- end }}

{{- /* qos.daemonset changes what the values set of the DaemonSet .object and its containers. */}}
{{- define "qos.daemonset" }}
{{- $values := .root.Values }}
{{- $pod := .object.spec.template.spec }}
{{- include "qos.schedule" . }}
{{- $_ := set .object.spec "updateStrategy" $values.updateStrategy }}
{{- $_ = set $pod "priorityClassName" $values.priorityClassName }}
{{- range $pod.containers }}
{{- $own := index $values .name }}
{{- $_ = set . "image" (include "qos.image" (dict "image" $values.image "tag" $.root.Chart.AppVersion)) }}
{{- $_ = set . "imagePullPolicy" $values.image.pullPolicy }}
{{- $_ = set . "args" (concat .args $own.args) }}
{{- $_ = set . "resources" $own.resources }}
{{- end }}
{{- end }}

{{- /* qos.deployment changes what .values set of the Deployment .object and its only container. */}}
{{- define "qos.deployment" }}
{{- $all := .root.Values }}
{{- $own := .values }}
{{- $pod := .object.spec.template }}
{{- $_ := set .object.spec "replicas" $own.replicas }}
{{- $_ = set $pod.metadata "labels" (merge (dict) $pod.metadata.labels $all.podLabels $all.labels) }}
{{- with $all.podAnnotations }}{{ $_ = set $pod.metadata "annotations" . }}{{ end }}
{{- with $all.imagePullSecrets }}{{ $_ = set $pod.spec "imagePullSecrets" . }}{{ end }}
{{- $_ = set $pod.spec "priorityClassName" $own.priorityClassName }}
{{- $_ = set $pod.spec "nodeSelector" (merge (dict) $pod.spec.nodeSelector $own.nodeSelector) }}
{{- with $own.tolerations }}{{ $_ = set $pod.spec "tolerations" . }}{{ end }}
{{- range $pod.spec.containers }}
{{- $_ = set . "image" (include "qos.image" (dict "image" $all.image "tag" $.root.Chart.AppVersion)) }}
{{- $_ = set . "imagePullPolicy" $all.image.pullPolicy }}
{{- $_ = set . "args" (concat .args $own.args) }}
{{- $_ = set . "resources" $own.resources }}
{{- end }}
{{- end }}

{{- /* qos.kubelet changes the kubelet's directory in the volumes .volumes. In the containers, the paths stay the same. */}}
{{- define "qos.kubelet" }}
{{- range .volumes }}
{{- if and .hostPath (hasPrefix "/var/lib/kubelet/" .hostPath.path) }}
{{- $_ := set .hostPath "path" (replace "/var/lib/kubelet" (trimSuffix "/" $.root.Values.kubeletDir) .hostPath.path) }}
{{- end }}
{{- end }}
{{- end }}
