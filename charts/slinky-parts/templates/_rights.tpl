{{/* root, binding, role, roleKind, account, namespace (nothing: cluster-wide), component */}}
{{- define "slinky.binding" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ if .namespace }}RoleBinding{{ else }}ClusterRoleBinding{{ end }}
metadata:
  name: {{ .binding }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "slinky.labels" . | nindent 4 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ default "ClusterRole" .roleKind }}, name: {{ .role }}}
subjects: [{kind: ServiceAccount, name: {{ .account }}, namespace: {{ include "slinky.namespace" .root }}}]
{{- end -}}

{{/* root, role, component, rules: YAML, cluster: true, or a Role in the chart's namespace */}}
{{- define "slinky.role" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ if .cluster }}ClusterRole{{ else }}Role{{ end }}
metadata:
  {{- include "slinky.metadata" (merge (dict "name" .role) .) | nindent 2 }}
rules:
{{ .rules }}
{{- end -}}
