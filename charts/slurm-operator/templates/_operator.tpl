{{- define "operator.path" -}}/etc/slurm-operator{{- end -}}

{{- define "operator.admission" -}}{{ include "slinky.fullname" . }}-admission{{- end -}}

{{- define "operator.namespaces" -}}{{ include "slinky.list" .Values.operator.namespaces }}{{- end -}}

{{- define "operator.tls" -}}
{{- include "slinky.tls.settings" (dict "root" . "name" (include "operator.admission" .) "tls" .Values.webhook.tls "certManager" .Values.certManager "mountPath" (include "operator.path" .)) -}}
{{- end -}}

{{/* Which namespaces' objects the webhook judges, as a selector in JSON; empty: all that the operator works on. */}}
{{- define "operator.webhook.selector" -}}
{{- $named := include "slinky.list" .Values.webhook.namespaces | fromJsonArray -}}
{{- if .Values.webhook.validating.namespaceSelector -}}
{{- toJson .Values.webhook.validating.namespaceSelector -}}
{{- else if $named -}}
{{- toJson (dict "matchExpressions" (list (dict "key" "kubernetes.io/metadata.name" "operator" "In" "values" $named))) -}}
{{- else -}}
{}
{{- end -}}
{{- end -}}

{{- define "operator.config" -}}
{{- $webhook := .Values.webhook -}}
{{- $admission := merge (include "operator.tls" . | fromJson) (dict
  "service" (include "operator.admission" .)
  "configuration" (include "slinky.fullname" .)
  "port" $webhook.serverPort
  "failOpen" (eq (default $webhook.failurePolicy $webhook.validating.failurePolicy) "Ignore")
  "timeoutSeconds" (int $webhook.timeoutSeconds)
  "matchPolicy" $webhook.validating.matchPolicy
  "matchConditions" (default list $webhook.validating.matchConditions)
  "namespaceSelector" (include "operator.webhook.selector" . | fromJson)) -}}
{{- $found := dict
  "namespace" (include "slinky.namespace" .)
  "namespaces" (include "operator.namespaces" . | fromJsonArray)
  "propagatedNodeConditions" .Values.propagatedNodeConditions
  "leader" (dict "name" (include "slinky.fullname" .) "elect" .Values.operator.leaderElection)
  "admission" $admission -}}
{{- toYaml (mergeOverwrite $found (deepCopy .Values.config)) -}}
{{- end -}}

{{/* Objects of a namespace that has clusters. Secrets are not among them. */}}
{{- define "operator.rules" -}}
- {apiGroups: [slinky.slurm.net], resources: [controllers, accountings, restapis, nodesets, loginsets, tokens], verbs: [get, list, watch]}
- {apiGroups: [slinky.slurm.net], resources: [controllers, accountings, restapis, nodesets], verbs: [patch]}  # their finalizers
- {apiGroups: [slinky.slurm.net], resources: [controllers/status, accountings/status, restapis/status, nodesets/status, loginsets/status, tokens/status], verbs: [patch]}
- {apiGroups: [slinky.slurm.net], resources: [controllers/finalizers, accountings/finalizers, restapis/finalizers, nodesets/finalizers, loginsets/finalizers, tokens/finalizers], verbs: [update]}  # to be named as owners, where the API server asks for that
- {apiGroups: [""], resources: [pods, services, configmaps], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [""], resources: [persistentvolumeclaims], verbs: [get, list, create, patch]}
- {apiGroups: [""], resources: [pods/status], verbs: [patch]}  # what Slurm says of a worker, as its pod's conditions
- {apiGroups: [apps], resources: [statefulsets, deployments], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [apps], resources: [controllerrevisions], verbs: [list, create, delete]}  # where a NodeSet has a revisionHistoryLimit
- {apiGroups: [policy], resources: [poddisruptionbudgets], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [networking.k8s.io], resources: [networkpolicies], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [monitoring.coreos.com], resources: [servicemonitors], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
{{- end -}}

{{/* Keys and tokens. Listing is for hearing of changes: of Secrets that no object names, only the metadata is looked at, and nothing is kept. */}}
{{- define "operator.rules.secrets" -}}
- {apiGroups: [""], resources: [secrets], verbs: [get, list, watch, create, patch, delete]}
{{- end -}}

{{- define "operator.rules.nodes" -}}
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
{{- end -}}

{{/* What the webhook looks at beside the object that it judges. */}}
{{- define "operator.rules.reading" -}}
- {apiGroups: [slinky.slurm.net], resources: [controllers, accountings, nodesets, loginsets], verbs: [list]}
- {apiGroups: [""], resources: [configmaps], verbs: [get]}
{{- end -}}

{{/* The end of the NOTES: what the original's chart has as a value and this operator does not need. */}}
{{- define "operator.warnings" -}}
{{- $paths := list -}}
{{- range list "accounting" "controller" "loginset" "nodeset" "restapi" "token" "slurmclient" -}}
{{- $paths = append $paths (printf "operator.%sWorkers" .) -}}
{{- end -}}
{{- $paths = concat $paths (list "operator.profile" "operator.metricsSecure" "webhook.metricsSecure" "webhook.podsBinding" "webhook.mutating" "webhook.leaderElection") -}}
{{- $operator := .Values.operator -}}
{{- $webhook := .Values.webhook -}}
{{- include "slinky.ignored" (dict "values" .Values "paths" $paths) -}}
{{- if or $operator.metricsSecure $webhook.metricsSecure }}

WARNING: metrics are served as plain HTTP without authentication. `networkPolicy.enabled=true` with `networkPolicy.metricsFrom` limits who can read them.
{{- end }}
{{- include "slinky.images.replaced" (dict "root" . "images" (dict "operator.image" $operator.image "webhook.image" $webhook.image)) -}}
{{- end -}}
