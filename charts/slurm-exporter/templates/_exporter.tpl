{{- define "exporter.path" -}}/etc/slurm-exporter{{- end -}}

{{/* The token's Secret as JSON: name and key. */}}
{{- define "exporter.token" -}}
{{- $said := .Values.sharedConfig.slurmJwtSecret -}}
{{- if kindIs "string" $said -}}
{{- toJson (dict "name" $said "key" "auth-token") -}}
{{- else -}}
{{- toJson (dict "name" $said.name "key" (default "auth-token" $said.key)) -}}
{{- end -}}
{{- end -}}

{{- define "exporter.config" -}}
{{- $found := dict
  "slurmRestApi" .Values.sharedConfig.slurmRestApi
  "originalNames" .Values.originalNames
  "slurm" (dict "tokenFile" (printf "/run/slinky/token/%s" (include "exporter.token" . | fromJson).key)) -}}
{{- toYaml (mergeOverwrite $found (deepCopy .Values.config)) -}}
{{- end -}}
