{{/*
A webhook's way to the API server. Its certificate is, by `tls` and `certManager` of the values:
  made by the process itself, and kept in the Secret that is made here (empty, so that an upgrade leaves what is in it, and an uninstall removes it);
  cert-manager's;
  or somebody else's, in a Secret that is named.
The webhook configurations are made here without a webhook: the process writes them, with its authority, when it listens, and an upgrade leaves them alone.
*/}}

{{/* root, name, tls, certManager → the Secret with the certificate's files, or nothing */}}
{{- define "slinky.tls.secret" -}}
{{- if .tls.existingSecret -}}
{{- .tls.existingSecret -}}
{{- else if .certManager.enabled -}}
{{- default (printf "%s-tls" .name) .certManager.secretName -}}
{{- end -}}
{{- end -}}

{{- define "slinky.tls.mounts" -}}
{{- if include "slinky.tls.secret" . -}}
- {name: tls, mountPath: /run/slinky/tls, readOnly: true}
{{- end -}}
{{- end -}}

{{- define "slinky.tls.volumes" -}}
{{- with include "slinky.tls.secret" . -}}
- name: tls
  secret: {secretName: {{ . }}}
{{- end -}}
{{- end -}}

{{/* The settings of `admission` that speak of it, as JSON. mountPath: where the configuration is */}}
{{- define "slinky.tls.settings" -}}
{{- $found := dict -}}
{{- if include "slinky.tls.secret" . -}}
{{- $_ := set $found "certificateFile" "/run/slinky/tls/tls.crt" -}}
{{- $_ := set $found "keyFile" "/run/slinky/tls/tls.key" -}}
{{- if .tls.caBundle -}}
{{- $_ := set $found "caFile" (printf "%s/ca.crt" .mountPath) -}}
{{- else -}}
{{- $_ := set $found "caFile" "/run/slinky/tls/ca.crt" -}}
{{- end -}}
{{- else -}}
{{- $_ := set $found "secret" .name -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* root, component, name, tls, certManager, port */}}
{{- define "slinky.webhook" -}}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "slinky.metadata" . | nindent 2 }}
spec:
  selector:
    {{- include "slinky.selector" . | nindent 4 }}
  ports:
    - {name: webhook, port: 443, targetPort: webhook}
{{- if not (include "slinky.tls.secret" .) }}
---
apiVersion: v1
kind: Secret
metadata:
  {{- include "slinky.metadata" . | nindent 2 }}
type: Opaque
{{- else if and .certManager.enabled (not .tls.existingSecret) }}
{{- include "slinky.certificates" . }}
{{- end }}
{{- end -}}

{{/* root, name, kinds, configuration */}}
{{- define "slinky.webhook.configurations" -}}
{{- $given := . -}}
{{- range .kinds }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: {{ . }}
metadata:
  {{- include "slinky.metadata" (merge (dict "name" $given.configuration "cluster" true) $given) | nindent 2 }}
{{- end }}
{{- end -}}

{{/* cert-manager: an authority of this webhook's own, and its certificate. The authority lasts twice as long and is renewed by half-time, so that it outlives whatever it signs. */}}
{{- define "slinky.certificates" -}}
{{- $namespace := include "slinky.namespace" .root -}}
{{- $issuer := .certManager.issuerRef -}}
{{- if not $issuer }}
{{- $hours := regexFind "^[0-9]+" .certManager.duration | int64 }}
{{- $issuer = dict "name" .name "kind" "Issuer" }}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  {{- include "slinky.metadata" (merge (dict "name" (printf "%s-self" .name)) .) | nindent 2 }}
spec:
  selfSigned: {}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  {{- include "slinky.metadata" (merge (dict "name" (printf "%s-ca" .name)) .) | nindent 2 }}
spec:
  isCA: true
  commonName: {{ .name }}-ca
  secretName: {{ .name }}-ca
  duration: {{ mul 2 $hours }}h0m0s
  renewBefore: {{ $hours }}h0m0s
  privateKey: {algorithm: ECDSA, size: 256}
  issuerRef: {name: {{ .name }}-self, kind: Issuer}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  {{- include "slinky.metadata" . | nindent 2 }}
spec:
  ca: {secretName: {{ .name }}-ca}
{{- end }}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  {{- include "slinky.metadata" . | nindent 2 }}
spec:
  dnsNames:
    - {{ .name }}.{{ $namespace }}.svc
    - {{ .name }}.{{ $namespace }}.svc.cluster.local
  secretName: {{ include "slinky.tls.secret" . }}
  duration: {{ .certManager.duration }}
  renewBefore: {{ .certManager.renewBefore }}
  issuerRef:
    {{- toYaml $issuer | nindent 4 }}
{{- end -}}
