{{- define "original.name" -}}
{{- contains "slurm" .Release.Name | ternary .Release.Name (printf "%s-slurm" .Release.Name) -}}
{{- end -}}

{{- define "original.labels" -}}
helm.sh/chart: slurm-1.2.1
app.kubernetes.io/part-of: slurm
app.kubernetes.io/version: "26.05"
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* root, said */}}
{{- define "original.container" -}}
{{- $image := printf "%s:%s" .said.image.repository .said.image.tag -}}
{{- $found := dict "args" list "env" list "image" $image "imagePullPolicy" .root.Values.imagePullPolicy "resources" dict "volumeMounts" list -}}
{{- toYaml (merge (omit .said "image") $found) -}}
{{- end -}}

{{- define "original.sidecar" -}}
{image: "registry.example.com/alpine:3", imagePullPolicy: IfNotPresent, resources: {}}
{{- end -}}

{{/* root, hostname, spec */}}
{{- define "original.template" -}}
metadata:
  labels:
    {{- include "original.labels" .root | nindent 4 }}
spec:
  {{- $usual := dict "affinity" dict "imagePullSecrets" list "initContainers" list "priorityClassName" "" "resources" dict "tolerations" list "volumes" list "nodeSelector" (dict "kubernetes.io/os" "linux") -}}
  {{- with .hostname }}{{ $_ := set $usual "hostname" . }}{{ end -}}
  {{- toYaml (merge (default dict .spec) $usual) | nindent 2 }}
{{- end -}}
