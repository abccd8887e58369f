{{/* What `slinky bridge run` may do, and no more. */}}
{{- define "bridge.rules" -}}
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch, patch, delete]}  # delete: past a disruption budget whose time is up; not needed with `eviction: {budgets: honour}`
- {apiGroups: [""], resources: [pods/status], verbs: [patch]}
- {apiGroups: [""], resources: [pods/binding, pods/eviction], verbs: [create]}
- {apiGroups: [""], resources: [namespaces], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch, patch]}  # patch: the taint of registered nodes, and cordons for what Slurm says
- {apiGroups: [""], resources: [nodes/status], verbs: [patch]}  # the condition slinky.slurm.net/SlurmNode
- {apiGroups: [batch], resources: [jobs], verbs: [get, list, watch]}
- {apiGroups: [scheduling.k8s.io], resources: [podgroups, workloads], verbs: [get, list, watch]}
- {apiGroups: [scheduling.x-k8s.io], resources: [podgroups], verbs: [get, list, watch]}
- {apiGroups: [scheduling.k8s.io, scheduling.x-k8s.io], resources: [podgroups/status], verbs: [patch]}
- {apiGroups: [jobset.x-k8s.io], resources: [jobsets], verbs: [get, list, watch]}
- {apiGroups: [leaderworkerset.x-k8s.io], resources: [leaderworkersets], verbs: [get, list, watch]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [list, watch]}  # learns at once of the CRDs of PodGroup, JobSet and LeaderWorkerSet
- {apiGroups: [""], resources: [persistentvolumeclaims, persistentvolumes], verbs: [get, list, watch, patch]}  # patch: volumes are bound for the node that Slurm gave
- {apiGroups: [storage.k8s.io], resources: [storageclasses, csinodes, csidrivers, csistoragecapacities, volumeattachments], verbs: [list, watch]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
{{- end -}}

{{/* The same in shadow mode: it reads. */}}
{{- define "bridge.rules.shadow" -}}
- {apiGroups: [""], resources: [pods, nodes, namespaces], verbs: [get, list, watch]}
- {apiGroups: [batch], resources: [jobs], verbs: [get, list, watch]}
- {apiGroups: [scheduling.k8s.io], resources: [podgroups, workloads], verbs: [get, list, watch]}
- {apiGroups: [scheduling.x-k8s.io], resources: [podgroups], verbs: [get, list, watch]}
- {apiGroups: [jobset.x-k8s.io], resources: [jobsets], verbs: [get, list, watch]}
- {apiGroups: [leaderworkerset.x-k8s.io], resources: [leaderworkersets], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [persistentvolumeclaims, persistentvolumes], verbs: [get, list, watch]}
- {apiGroups: [storage.k8s.io], resources: [storageclasses, csinodes, csidrivers, csistoragecapacities, volumeattachments], verbs: [list, watch]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [list, watch]}
{{- end -}}

{{/* For checkpoint signals, which are delivered by a command in the container. `get` is what servers before 1.35 ask for. */}}
{{- define "bridge.rules.checkpoint" -}}
- {apiGroups: [""], resources: [pods/exec], verbs: [get, create]}
{{- end -}}

{{/* In its own namespace. */}}
{{- define "bridge.rules.own" -}}
{{- if .Values.scheduler.leaderElect -}}
- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [{{ include "bridge.lease" . }}{{ if not .Values.shadow }}, {{ include "bridge.lease" . }}-claim{{ end }}], verbs: [get, update, patch]}
{{ end -}}
{{- if .Values.shadow -}}
- {apiGroups: [""], resources: [configmaps], resourceNames: [slurm-bridge-shadow], verbs: [get, patch]}
{{ end -}}
{{- end -}}

{{- define "bridge.rules.admission" -}}
- {apiGroups: [""], resources: [namespaces], verbs: [get, list, watch]}
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations]
  resourceNames: [{{ include "slinky.fullname" . }}]
  verbs: [get, list, watch, update, patch]
{{- end -}}

{{/* What `slinky bridge uninstall` does besides (docs/uninstall.md), for as long as the Job of that name runs. */}}
{{- define "bridge.rules.uninstall" -}}
- {apiGroups: [""], resources: [pods], verbs: [list, patch, delete]}
- {apiGroups: [""], resources: [pods/status], verbs: [patch]}
- {apiGroups: [""], resources: [pods/eviction], verbs: [create]}
- {apiGroups: [""], resources: [nodes], verbs: [get, list, patch]}
- {apiGroups: [""], resources: [nodes/status], verbs: [patch]}
- {apiGroups: [""], resources: [namespaces], verbs: [get]}
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations]
  resourceNames: [{{ include "slinky.fullname" . }}]
  verbs: [get, delete]
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingadmissionpolicies, validatingadmissionpolicybindings]
  resourceNames: [{{ include "slinky.fullname" . }}-keys]
  verbs: [get, delete]
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingadmissionpolicies, mutatingadmissionpolicybindings]
  resourceNames: [{{ include "slinky.fullname" . }}-pods]
  verbs: [get, delete]
{{- end -}}

{{- define "bridge.rules.uninstall.own" -}}
- {apiGroups: [""], resources: [secrets], resourceNames: [{{ include "bridge.admission" . }}], verbs: [get, delete]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}
- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [{{ include "slinky.fullname" . }}, {{ include "slinky.fullname" . }}-claim], verbs: [get, patch, delete]}
- {apiGroups: [apps], resources: [deployments, deployments/scale], resourceNames: [{{ include "slinky.fullname" . }}, {{ include "bridge.admission" . }}], verbs: [get, patch]}
{{- end -}}
