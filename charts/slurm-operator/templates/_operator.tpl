{{- define "operator.path" -}}/etc/slurm-operator{{- end -}}

{{- define "operator.admission" -}}{{ include "slinky.fullname" . }}-admission{{- end -}}

{{- define "operator.namespaces" -}}{{ include "slinky.list" .Values.operator.namespaces }}{{- end -}}

{{- define "operator.tls" -}}
{{- include "slinky.tls.settings" (dict "root" . "name" (include "operator.admission" .) "tls" .Values.webhook.tls "certManager" .Values.certManager "mountPath" (include "operator.path" .)) -}}
{{- end -}}

{{- define "operator.config" -}}
{{- $admission := merge (include "operator.tls" . | fromJson) (dict
  "service" (include "operator.admission" .)
  "configuration" (include "slinky.fullname" .)
  "port" .Values.webhook.serverPort
  "failOpen" (eq .Values.webhook.failurePolicy "Ignore")) -}}
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
