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

{{/* Not empty for an image of the original's programs, which do not take our arguments. image: text, or a mapping with `repository` */}}
{{- define "slinky.image.theirs" -}}
{{- $name := kindIs "string" . | ternary . (get (kindIs "map" . | ternary . dict) "repository") -}}
{{- if regexMatch "(^|/)slinkyproject/slurm-(operator|bridge)(-|:|@|$)" (toString $name) -}}yes{{- end -}}
{{- end -}}

{{/* root, image: the process's own image, as text or as repository, tag and digest. `image` at the top says the rest. */}}
{{- define "slinky.image" -}}
{{- $said := dict -}}
{{- if include "slinky.image.theirs" .image -}}
{{- else if kindIs "string" .image -}}
{{- if .image -}}{{- $said = dict "whole" .image -}}{{- end -}}
{{- else -}}
{{- range $key, $value := .image -}}{{- if $value -}}{{- $_ := set $said $key $value -}}{{- end -}}{{- end -}}
{{- end -}}
{{- $image := merge $said .root.Values.image -}}
{{- if $image.whole -}}
{{- $image.whole -}}
{{- else -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default .root.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The chart's own mapping with an administrator's over it; null takes a field away. ours, theirs → JSON */}}
{{- define "slinky.over" -}}
{{- $found := dict -}}
{{- range $key, $value := mergeOverwrite (deepCopy .ours) (deepCopy (default dict .theirs)) -}}
{{- if not (kindIs "invalid" $value) -}}{{- $_ := set $found $key $value -}}{{- end -}}
{{- end -}}
{{- range $key, $value := .theirs -}}
{{- if kindIs "invalid" $value -}}{{- $_ := unset $found $key -}}{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* Which of these paths the values have, and not as null, false or empty; as a JSON list. values, paths */}}
{{- define "slinky.given" -}}
{{- $found := list -}}
{{- $values := .values -}}
{{- range .paths -}}
{{- $place := $values -}}
{{- range splitList "." . -}}
{{- $place = kindIs "map" $place | ternary (get (kindIs "map" $place | ternary $place dict) .) "" -}}
{{- end -}}
{{- if $place -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* A part of the NOTES: values that are accepted and have no effect. values, paths */}}
{{- define "slinky.ignored" -}}
{{- with include "slinky.given" . | fromJsonArray }}

WARNING: these values have no effect here: {{ join ", " . }}.
{{- end }}
{{- end -}}

{{/* A part of the NOTES: images of the original that were replaced. root, images: path → value */}}
{{- define "slinky.images.replaced" -}}
{{- $found := list -}}
{{- range $path, $image := .images -}}
{{- if include "slinky.image.theirs" $image -}}{{- $found = append $found $path -}}{{- end -}}
{{- end -}}
{{- with $found }}

WARNING: {{ join " and " . }} {{ len . | eq 1 | ternary "is an image" "are images" }} of another program. `image` was used instead: {{ include "slinky.image" (dict "root" $.root "image" dict) }}
{{- end }}
{{- end -}}

{{/* Where /metrics is: `health`, a port's number, or nothing. process */}}
{{- define "slinky.metrics.port" -}}
{{- if kindIs "invalid" .metricsPort -}}health
{{- else if eq (int .metricsPort) (int .healthPort) -}}health
{{- else if ne (int .metricsPort) 0 -}}{{ int .metricsPort }}
{{- end -}}
{{- end -}}

{{/* Whether debugging messages are logged: `debug`, or a number of 1 or more. */}}
{{- define "slinky.verbose" -}}
{{- if regexMatch "^(debug|[1-9][0-9]*)$" (toString .) -}}yes{{- end -}}
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
