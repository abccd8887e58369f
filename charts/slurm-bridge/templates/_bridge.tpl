{{- define "bridge.path" -}}/etc/slurm-bridge{{- end -}}

{{- define "bridge.admission" -}}{{ include "slinky.fullname" . }}-admission{{- end -}}

{{- define "bridge.account" -}}
{{- include "slinky.account" (dict "name" (include "slinky.fullname" .) "account" .Values.scheduler.serviceAccount) -}}
{{- end -}}

{{/* A shadow's Lease is another than the bridge's own. */}}
{{- define "bridge.lease" -}}{{ include "slinky.fullname" . }}{{ if .Values.shadow }}-shadow{{ end }}{{- end -}}

{{/* The token's Secret as JSON: name and key. */}}
{{- define "bridge.token" -}}
{{- $said := .Values.sharedConfig.slurmJwtSecret -}}
{{- if kindIs "string" $said -}}
{{- toJson (dict "name" $said "key" "auth-token") -}}
{{- else -}}
{{- toJson (dict "name" $said.name "key" (default "auth-token" $said.key)) -}}
{{- end -}}
{{- end -}}

{{- define "bridge.tls" -}}
{{- include "slinky.tls.settings" (dict "root" . "name" (include "bridge.admission" .) "tls" .Values.admission.tls "certManager" .Values.admission.certManager "mountPath" (include "bridge.path" .)) -}}
{{- end -}}

{{- define "bridge.config" -}}
{{- $admission := merge (include "bridge.tls" . | fromJson) (dict
  "service" (include "bridge.admission" .)
  "configuration" (include "slinky.fullname" .)
  "port" .Values.admission.serverPort
  "failOpen" (eq .Values.admission.failurePolicy "Ignore")
  "bridgeUsers" (list (printf "system:serviceaccount:%s:%s" (include "slinky.namespace" .) (include "bridge.account" .)))) -}}
{{- $found := dict
  "schedulerName" .Values.schedulerConfig.schedulerName
  "partition" .Values.schedulerConfig.partition
  "mcsLabel" .Values.schedulerConfig.mcsLabel
  "slurmRestApi" .Values.sharedConfig.slurmRestApi
  "namespace" (include "slinky.namespace" .)
  "shadow" .Values.shadow
  "slurm" (dict "tokenFile" (printf "/run/slinky/token/%s" (include "bridge.token" . | fromJson).key) "completion" (not (empty .Values.sharedConfig.slurmConf)))
  "leader" (dict "name" (include "slinky.fullname" .) "elect" .Values.scheduler.leaderElect)
  "admission" $admission -}}
{{- if .Values.admission.managedNamespaceSelector -}}
{{- $_ := set $found "managedNamespaceSelector" .Values.admission.managedNamespaceSelector -}}
{{- else -}}
{{- $_ := set $found "managedNamespaces" .Values.admission.managedNamespaces -}}
{{- end -}}
{{- toYaml (mergeOverwrite $found (deepCopy .Values.config)) -}}
{{- end -}}

{{- define "bridge.token.mounts" -}}
- {name: token, mountPath: /run/slinky/token, readOnly: true}
{{- end -}}

{{- define "bridge.token.volumes" -}}
- name: token
  secret: {secretName: {{ (include "bridge.token" . | fromJson).name }}}
{{- end -}}

{{/* Where libslurm finds its configuration. */}}
{{- define "bridge.environment" -}}
{{- if .Values.sharedConfig.slurmConf -}}
- {name: SLURM_CONF, value: {{ include "bridge.path" . }}/slurm.conf}
{{- end -}}
{{- end -}}

{{/* The end of the NOTES: what the original's chart has as a value and this bridge does not need. */}}
{{- define "bridge.warnings" -}}
{{- include "slinky.ignored" (dict "values" .Values "paths" (list "controllers" "scheduler.verbosity")) -}}
{{- include "slinky.images.replaced" (dict "root" . "images" (dict "scheduler.image" .Values.scheduler.image "admission.image" .Values.admission.image)) -}}
{{- end -}}
