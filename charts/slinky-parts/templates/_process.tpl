{{/*
A process of ours: a Deployment, and what belongs to it. Comes in: a dict with
  root, component, name   the chart's root context; `run` or `admission`, say; the name of all its objects
  process                 its values: replicas, image, resources and so on
  arguments               a list: `slinky` with these words
  ports                   a dict: name → number, besides `health`
  config                  the template of its configuration file; a change of it makes new pods
  environment             YAML, where it has one
  noToken                 true where it does not speak with Kubernetes
  volumes, mounts         YAML, where it has more than its configuration and a /tmp
What must stay true: containers run as non-root, read-only, without capabilities, unless the
process's podSecurityContext or securityContext says otherwise.
*/}}
{{- define "slinky.deployment" -}}
{{- $process := .process -}}
{{- $selector := include "slinky.selector" . -}}
{{- $metrics := include "slinky.metrics.port" $process -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "slinky.metadata" . | nindent 2 }}
spec:
  replicas: {{ $process.replicas }}
  revisionHistoryLimit: 3
  selector:
    matchLabels:
      {{- $selector | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "slinky.labels" . | nindent 8 }}
        {{- with $process.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: slinky
        checksum/config: {{ include .config .root | sha256sum }}
        {{- with $process.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "slinky.account" (dict "name" .name "account" $process.serviceAccount) }}
      {{- if .noToken }}
      automountServiceAccountToken: false
      {{- end }}
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with default .root.Values.priorityClassName $process.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- $pod := dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532 "seccompProfile" (dict "type" "RuntimeDefault") }}
      securityContext:
        {{- include "slinky.over" (dict "ours" $pod "theirs" $process.podSecurityContext) | fromJson | toYaml | nindent 8 }}
      {{- with $process.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $process.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $process.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        {{- if $process.topologySpreadConstraints }}
        {{- toYaml $process.topologySpreadConstraints | nindent 8 }}
        {{- else }}
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- $selector | nindent 14 }}
        {{- end }}
      terminationGracePeriodSeconds: 30
      containers:
        - name: slinky
          image: {{ include "slinky.image" (dict "root" .root "image" $process.image) }}
          imagePullPolicy: {{ coalesce $process.imagePullPolicy (kindIs "map" $process.image | ternary $process.image dict).pullPolicy .root.Values.imagePullPolicy "IfNotPresent" }}
          args:
            {{- toYaml .arguments | nindent 12 }}
            - --health-port={{ $process.healthPort }}
            {{- if and $metrics (ne $metrics "health") }}
            - --metrics-port={{ $metrics }}
            {{- else if not $metrics }}
            - --metrics-port=0
            {{- end }}
            - --log-format={{ $process.logFormat }}
            {{- if include "slinky.verbose" $process.logLevel }}
            - --verbose
            {{- end }}
          {{- with .environment }}
          env:
            {{- . | nindent 12 }}
          {{- end }}
          ports:
            - {name: health, containerPort: {{ $process.healthPort }}}
            {{- if and $metrics (ne $metrics "health") }}
            - {name: metrics, containerPort: {{ $metrics }}}
            {{- end }}
            {{- range $name, $number := .ports }}
            - {name: {{ $name }}, containerPort: {{ $number }}}
            {{- end }}
          startupProbe:
            httpGet: {path: /livez, port: health}
            periodSeconds: 2
            failureThreshold: 60
          livenessProbe:
            httpGet: {path: /livez, port: health}
            periodSeconds: 10
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /readyz, port: health}
            periodSeconds: 5
          resources:
            {{- toYaml $process.resources | nindent 12 }}
          {{- $container := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) }}
          securityContext:
            {{- include "slinky.over" (dict "ours" $container "theirs" $process.securityContext) | fromJson | toYaml | nindent 12 }}
          volumeMounts:
            - {name: config, mountPath: {{ .mountPath }}, readOnly: true}
            - {name: tmp, mountPath: /tmp}
            {{- with .mounts }}
            {{- . | nindent 12 }}
            {{- end }}
      volumes:
        - name: config
          configMap: {name: {{ include "slinky.fullname" .root }}-config}
        - {name: tmp, emptyDir: {}}
        {{- with .volumes }}
        {{- . | nindent 8 }}
        {{- end }}
{{- end -}}

{{/* root, component, name, process */}}
{{- define "slinky.serviceaccount" -}}
{{- if .process.serviceAccount.create -}}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "slinky.metadata" (merge (dict "name" (include "slinky.account" (dict "name" .name "account" .process.serviceAccount)) "annotations" .process.serviceAccount.annotations) .) | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* root, component, name, process. One replica has none: it would keep its node from being drained. */}}
{{- define "slinky.budget" -}}
{{- if and .process.pdb.enabled (gt (int .process.replicas) 1) -}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "slinky.metadata" . | nindent 2 }}
spec:
  {{- if not (kindIs "invalid" .process.pdb.maxUnavailable) }}
  maxUnavailable: {{ .process.pdb.maxUnavailable }}
  {{- else }}
  minAvailable: {{ .process.pdb.minAvailable }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "slinky.selector" . | nindent 6 }}
{{- end -}}
{{- end -}}

{{/* root, component, name, process: a Service for /metrics, and a ServiceMonitor that finds it */}}
{{- define "slinky.metrics" -}}
{{- $monitor := .root.Values.metrics.serviceMonitor -}}
{{- $metrics := include "slinky.metrics.port" .process -}}
{{- if $metrics -}}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "slinky.metadata" (merge (dict "name" (printf "%s-metrics" .name)) .) | nindent 2 }}
spec:
  clusterIP: None
  selector:
    {{- include "slinky.selector" . | nindent 4 }}
  ports:
    {{- if eq $metrics "health" }}
    - {name: metrics, port: {{ .process.healthPort }}, targetPort: health}
    {{- else }}
    - {name: metrics, port: {{ $metrics }}, targetPort: metrics}
    {{- end }}
{{- if $monitor.enabled }}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  {{- include "slinky.metadata" . | nindent 2 }}
    {{- with $monitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $monitor.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "slinky.selector" . | nindent 6 }}
  namespaceSelector:
    matchNames: [{{ include "slinky.namespace" .root }}]
  endpoints:
    - port: metrics
      path: /metrics
      {{- if .honorLabels }}
      honorLabels: true
      {{- end }}
      {{- with $monitor.interval }}
      interval: {{ . }}
      {{- end }}
      {{- with $monitor.scrapeTimeout }}
      scrapeTimeout: {{ . }}
      {{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* root, component, name, process, ports: those besides `health` that others may reach; slurm: true where it speaks with slurmrestd */}}
{{- define "slinky.networkpolicy" -}}
{{- $policy := .root.Values.networkPolicy -}}
{{- if $policy.enabled -}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "slinky.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "slinky.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    # Kubelets ask for its health, Prometheus for its metrics.
    - ports:
        - {port: health}
        {{- $metrics := include "slinky.metrics.port" .process }}
        {{- if and $metrics (ne $metrics "health") }}
        - {port: metrics}
        {{- end }}
      {{- with $policy.metricsFrom }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- with .ports }}
    # The API server calls; which address it has, no selector can say.
    - ports:
        {{- range $name, $number := . }}
        - {port: {{ $name }}}
        {{- end }}
    {{- end }}
  egress:
    - ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
    {{- with $policy.apiServerPorts }}
    - ports:
        {{- range . }}
        - {port: {{ . }}}
        {{- end }}
    {{- end }}
    {{- if .slurm }}
    - ports:
        {{- range $policy.slurmPorts }}
        - {port: {{ . }}}
        {{- end }}
    {{- end }}
    {{- with $policy.extraEgress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
{{- end -}}

{{/* A Lease that the processes take: empty, so that an upgrade leaves it to who holds it, and an uninstall removes it. root, component, name */}}
{{- define "slinky.lease" -}}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  {{- include "slinky.metadata" . | nindent 2 }}
{{- end -}}

{{/* Each of `extraObjects`: YAML, or text with templates in it. */}}
{{- define "slinky.extra" -}}
{{- $root := . -}}
{{- range .Values.extraObjects }}
---
{{ if kindIs "string" . }}{{ tpl . $root }}{{ else }}{{ tpl (toYaml .) $root }}{{ end }}
{{- end }}
{{- end -}}
