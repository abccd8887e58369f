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

{{/* Not empty where the API server knows PrometheusRules. `helm template` knows of no server: there --api-versions=monitoring.coreos.com/v1/PrometheusRule says so. */}}
{{- define "exporter.knowsRules" -}}
{{- if .Capabilities.APIVersions.Has "monitoring.coreos.com/v1/PrometheusRule" -}}yes{{- end -}}
{{- end -}}
