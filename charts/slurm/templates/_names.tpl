{{- define "slurm.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Also the Controller's name: pods and Services are called after it. */}}
{{- define "slurm.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "slurm.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "slurm.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "slurm.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* root, name, metadata: labels and annotations of the values' own */}}
{{- define "slurm.metadata" -}}
{{- $labels := dict
  "app.kubernetes.io/part-of" "slurm"
  "app.kubernetes.io/managed-by" .root.Release.Service
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_") -}}
{{- $said := default dict .metadata -}}
{{- $found := dict "name" .name "namespace" (include "slurm.namespace" .root) "labels" (merge (deepCopy (default dict $said.labels)) $labels) -}}
{{- with $said.annotations -}}{{- $_ := set $found "annotations" . -}}{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* The key that the Controller refers to in the API server now, as JSON; nothing where it is not there, refers to none, or cannot be looked up (helm template). It cannot be changed: what is made for an existing cluster has to refer to the same. root, key (slurm or jwt) */}}
{{- define "slurm.heldKey" -}}
{{- if .root.Capabilities.APIVersions.Has "slinky.slurm.net/v1beta1/Controller" -}}
{{- $spec := default dict (lookup "slinky.slurm.net/v1beta1" "Controller" (include "slurm.namespace" .root) (include "slurm.fullname" .root)).spec -}}
{{- with eq .key "slurm" | ternary $spec.slurmKeyRef (coalesce $spec.jwtKeyRef $spec.jwtHs256KeyRef) -}}
{{- if .name -}}{{- toJson . -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Keys, as JSON: the Secret that is named, or the one that the cluster has, or the one that the operator makes. root, key (slurm or jwt), said */}}
{{- define "slurm.key" -}}
{{- $held := include "slurm.heldKey" . -}}
{{- if .said.secretRef.name -}}
{{- toJson (dict "name" .said.secretRef.name "key" (default (printf "%s.key" .key) .said.secretRef.key)) -}}
{{- else if $held -}}
{{- $held -}}
{{- else if .said.create -}}
{{- toJson (dict "name" (printf "%s-auth-%s" (include "slurm.fullname" .root) .key) "key" (printf "%s.key" .key)) -}}
{{- else -}}
{{- fail (printf "%sKey.create is false, so %sKey.secretRef has to name the Secret with the key" .key .key) -}}
{{- end -}}
{{- end -}}

{{/* The ConfigMap's key with the public keys of other issuers, as JSON. */}}
{{- define "slurm.jwks" -}}
{{- $said := default dict .Values.jwksKeys.configMapRef -}}
{{- $name := default (printf "%s-auth-jwks" (include "slurm.fullname" .)) $said.name -}}
{{- toJson (dict "name" $name "key" (default "jwks.json" $said.key)) -}}
{{- end -}}

{{- define "slurm.sssd" -}}
{{- if .Values.sssd.secretRef.name -}}
{{- toJson (dict "name" .Values.sssd.secretRef.name "key" (default "sssd.conf" .Values.sssd.secretRef.key)) -}}
{{- else if .Values.sssd.conf -}}
{{- toJson (dict "name" (printf "%s-sssd-conf" (include "slurm.fullname" .)) "key" "sssd.conf") -}}
{{- end -}}
{{- end -}}
