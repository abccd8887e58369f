{{/* Names and labels. Each takes the chart's root context, or a dict with it as `root`. */}}

{{- define "slinky.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The release's name, with the chart's in it: release `slurm-operator` is `slurm-operator`, release `one` is `one-slurm-operator`. */}}
{{- define "slinky.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "slinky.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "slinky.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "slinky.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* root, component */}}
{{- define "slinky.selector" -}}
app.kubernetes.io/name: {{ include "slinky.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- define "slinky.labels" -}}
{{ include "slinky.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* root, name, component, annotations; cluster: true where it belongs to no namespace */}}
{{- define "slinky.metadata" -}}
name: {{ .name }}
{{- if not .cluster }}
namespace: {{ include "slinky.namespace" .root }}
{{- end }}
labels:
  {{- include "slinky.labels" . | nindent 2 }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* root, image: what a process says of its own. What it does not say is as `image` at the top. */}}
{{- define "slinky.image" -}}
{{- $said := dict -}}
{{- range $key, $value := .image -}}{{- if $value -}}{{- $_ := set $said $key $value -}}{{- end -}}{{- end -}}
{{- $image := merge $said .root.Values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default .root.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* root, name (where none is said), account: create, name, annotations */}}
{{- define "slinky.account" -}}
{{- default .name .account.name -}}
{{- end -}}

{{/* A list, or text with commas between; as a JSON list. */}}
{{- define "slinky.list" -}}
{{- if kindIs "string" . -}}
{{- $found := list -}}
{{- range splitList "," . -}}{{- if trim . -}}{{- $found = append $found (trim .) -}}{{- end -}}{{- end -}}
{{- toJson $found -}}
{{- else -}}
{{- toJson (default list .) -}}
{{- end -}}
{{- end -}}
