{{- /*
A node belongs to the pool whose nodeLabels it has. If it has the labels of two pools, it belongs to the more specific one: the pool that has
all labels of the other pool, and more. Other nodes belong to the pool "default", which has no labels.
*/}}

{{- /* qos.has returns "true" if the labels .all have each of the labels .some. */}}
{{- define "qos.has" }}
{{- $has := true }}
{{- range $key, $value := .some }}
{{- if not (and (hasKey $.all $key) (eq (get $.all $key) $value)) }}{{ $has = false }}{{ end }}
{{- end }}
{{- ternary "true" "" $has }}
{{- end }}

{{- /* qos.checkPools fails if two pools have the same name, or if a node can fit two pools of which neither is more specific. */}}
{{- define "qos.checkPools" }}
{{- range $i, $a := .Values.pools }}
{{- range $b := slice $.Values.pools (add1 $i) }}
{{- if eq $a.name $b.name }}{{ fail (printf "pools: two pools have the name %q; rename one of them" $a.name) }}{{ end }}
{{- $both := merge (dict) $a.nodeLabels $b.nodeLabels }}
{{- $fits := include "qos.has" (dict "all" $both "some" $b.nodeLabels) }}
{{- $same := and (eq (len $both) (len $a.nodeLabels)) (eq (len $both) (len $b.nodeLabels)) }}
{{- $decided := false }}
{{- range $.Values.pools }}
{{- if and (eq (len .nodeLabels) (len $both)) (include "qos.has" (dict "all" $both "some" .nodeLabels)) }}{{ $decided = true }}{{ end }}
{{- end }}
{{- if and $fits (or $same (not $decided)) }}
{{- $labels := list }}
{{- range $key, $value := $both }}{{ $labels = append $labels (printf "%s=%s" $key $value) }}{{ end }}
{{- fail (printf "pools: a node with the labels %s fits both %q and %q, and neither pool is more specific; give one of them all nodeLabels of the other and one more, or add a pool with exactly these labels" (join ", " $labels) $a.name $b.name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /*
qos.affinity returns the node affinity that excludes the nodes of more specific pools: {"terms": […]}. A node matches the affinity if it
matches all expressions of one term. For each more specific pool, each term gets an expression that excludes one label of that pool.
*/}}
{{- define "qos.affinity" }}
{{- $labels := .labels }}
{{- $terms := list (list) }}
{{- range .pools }}
{{- if and (gt (len .nodeLabels) (len $labels)) (include "qos.has" (dict "all" .nodeLabels "some" $labels)) }}
{{- $more := omit .nodeLabels "" }}
{{- range $key, $_ := $labels }}{{ $more = omit $more $key }}{{ end }}
{{- $next := list }}
{{- range $term := $terms }}
{{- $excluded := false }}
{{- range $key, $value := $more }}
{{- if has (dict "key" $key "operator" "NotIn" "values" (list $value)) $term }}{{ $excluded = true }}{{ end }}
{{- end }}
{{- if $excluded }}
{{- $next = append $next $term }}
{{- else }}
{{- range $key, $value := $more }}
{{- $next = append $next (append $term (dict "key" $key "operator" "NotIn" "values" (list $value))) }}
{{- end }}
{{- end }}
{{- end }}
{{- $terms = $next }}
{{- end }}
{{- end }}
{{- $selectors := list }}
{{- range $terms }}
{{- if . }}{{ $selectors = append $selectors (dict "matchExpressions" .) }}{{ end }}
{{- end }}
{{- dict "terms" $selectors | toJson }}
{{- end }}

{{- /* qos.onNodes makes the DaemonSet .object that of the pool .pool. */}}
{{- define "qos.onNodes" }}
{{- $pod := .object.spec.template }}
{{- $nodes := dict "qos.noderesource.dev/nodes" .pool.name }}
{{- $suffix := ternary "" (printf "-%s" .pool.name) (eq .pool.name "default") }}
{{- $_ := set .object.metadata "name" (printf "%s%s" .object.metadata.name $suffix) }}
{{- $_ = set .object.metadata "labels" (merge (dict) .object.metadata.labels $nodes) }}
{{- $_ = set .object.spec.selector "matchLabels" (merge (dict) .object.spec.selector.matchLabels $nodes) }}
{{- $_ = set $pod.metadata "labels" (merge (dict) $pod.metadata.labels $nodes) }}
{{- include "qos.daemonset" (dict "root" .root "object" .object) }}
{{- include "qos.kubelet" (dict "root" .root "volumes" $pod.spec.volumes) }}
{{- $_ = set $pod.spec "nodeSelector" (merge (dict) .pool.nodeLabels $pod.spec.nodeSelector) }}
{{- with (include "qos.affinity" (dict "labels" .pool.nodeLabels "pools" .root.Values.pools) | fromJson).terms }}
{{- $_ = set $pod.spec "affinity" (dict "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" .))) }}
{{- end }}
{{- end }}

{{- /* qos.dra returns "true" if a pool has a DRA driver. */}}
{{- define "qos.dra" }}
{{- $dra := .Values.dra }}
{{- range .Values.pools }}{{ $dra = or $dra .dra }}{{ end }}
{{- if $dra }}true{{ end }}
{{- end }}

{{- /* qos.withoutDevicePlugins removes the shim from a pod, as the patch of deploy/kubernetes-dra does. */}}
{{- define "qos.withoutDevicePlugins" }}
{{- $containers := list }}
{{- range .containers }}{{ if ne .name "shim" }}{{ $containers = append $containers . }}{{ end }}{{ end }}
{{- $volumes := list }}
{{- range .volumes }}{{ if not (has .name (list "device-plugins" "pod-resources" "dra-driver")) }}{{ $volumes = append $volumes . }}{{ end }}{{ end }}
{{- $_ := set . "containers" $containers }}
{{- $_ = set . "volumes" $volumes }}
{{- end }}

{{- /*
qos.driver prints the DaemonSet of the DRA driver of the pool .pool. The kubelet connects to the driver's socket at the path that the driver
sees, so the kubelet's directory has the same path in the container.
*/}}
{{- define "qos.driver" }}
{{- $dir := trimSuffix "/" .root.Values.kubeletDir }}
{{- range (include "qos.objects" (dict "root" .root "file" "kubernetes-dra/driver/driver.yaml") | fromJson).items }}
{{- include "qos.onNodes" (dict "root" $.root "pool" $.pool "object" .) }}
{{- if eq (toString $.pool.dra) "retire" }}
{{- range .spec.template.spec.containers }}{{ $_ := set . "args" (append .args "--retire") }}{{ end }}
{{- end }}
{{- if ne $dir "/var/lib/kubelet" }}
{{- range .spec.template.spec.containers }}
{{- $_ := set . "args" (append .args (printf "--kubelet-dir=%s" $dir)) }}
{{- range .volumeMounts }}{{ $_ := set . "mountPath" (replace "/var/lib/kubelet" $dir .mountPath) }}{{ end }}
{{- end }}
{{- end }}
{{- include "qos.print" (dict "root" $.root "object" .) }}
{{- end }}
{{- end }}

{{- /* qos.plugin prints the DaemonSet and the class files of the pool .pool. */}}
{{- define "qos.plugin" }}
{{- $values := .root.Values }}
{{- $suffix := ternary "" (printf "-%s" .pool.name) (eq .pool.name "default") }}

{{- $files := .pool.classFiles | default (dict "classes.yaml" (.root.Files.Get "files/kubernetes/classes.yaml")) }}
{{- $classes := dict "apiVersion" "v1" "kind" "ConfigMap" "metadata" (dict "name" (printf "qos-classes%s" $suffix)) "data" $files }}
{{- include "qos.print" (dict "root" .root "object" $classes) }}

{{- range (include "qos.objects" (dict "root" .root "file" "kubernetes/daemonset.yaml") | fromJson).items }}
{{- $pod := .spec.template }}
{{- if eq (toString $.pool.dra) "true" }}{{ include "qos.withoutDevicePlugins" $pod.spec }}{{ end }}
{{- include "qos.onNodes" (dict "root" $.root "pool" $.pool "object" .) }}
{{- range $pod.spec.volumes }}
{{- if eq .name "classes" }}{{ $_ := set .configMap "name" $classes.metadata.name }}{{ end }}
{{- end }}
{{- range $pod.spec.containers }}
{{- if eq .name "plugin" }}
{{- if or $values.followAnnotations $values.storage.enabled }}{{ $_ := set . "args" (append .args "--api-socket-group=65521") }}{{ end }}
{{- if $values.tracing.endpoint }}
{{- $_ := set . "args" (append .args (printf "--tracing-endpoint=%s" $values.tracing.endpoint)) }}
{{- $node := dict "name" "NODE_NAME" "valueFrom" (dict "fieldRef" (dict "fieldPath" "spec.nodeName")) }}
{{- $_ = set . "env" (list $node (dict "name" "OTEL_RESOURCE_ATTRIBUTES" "value" "k8s.node.name=$(NODE_NAME)")) }}
{{- end }}
{{- end }}
{{- end }}
{{- include "qos.print" (dict "root" $.root "object" .) }}
{{- end }}
{{- end }}
