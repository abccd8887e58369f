{{/* What is said of a container, a pod, a Service, without what is empty: an empty text would win over what the operator makes. */}}
{{- define "slurm.said" -}}
{{- $found := dict -}}
{{- range $key, $value := . -}}
{{- if or $value (kindIs "bool" $value) (kindIs "float64" $value) (kindIs "int64" $value) -}}{{- $_ := set $found $key $value -}}{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* root, image: text, or repository, tag and digest */}}
{{- define "slurm.image" -}}
{{- if kindIs "string" .image -}}
{{- .image -}}
{{- else if and .image .image.repository -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .root.Chart.AppVersion .image.tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* root, container */}}
{{- define "slurm.container" -}}
{{- $found := include "slurm.said" (omit (default dict .container) "image") | fromJson -}}
{{- with include "slurm.image" (dict "root" .root "image" (default dict .container).image) -}}{{- $_ := set $found "image" . -}}{{- end -}}
{{- if not $found.imagePullPolicy -}}{{- $_ := set $found "imagePullPolicy" .root.Values.imagePullPolicy -}}{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* root, metadata, podSpec, hostname */}}
{{- define "slurm.template" -}}
{{- $spec := include "slurm.said" (default dict .podSpec) | fromJson -}}
{{- with concat (default list $spec.imagePullSecrets) .root.Values.imagePullSecrets -}}{{- $_ := set $spec "imagePullSecrets" . -}}{{- end -}}
{{- if and .root.Values.priorityClass.enabled (not $spec.priorityClassName) -}}{{- $_ := set $spec "priorityClassName" .root.Values.priorityClass.name -}}{{- end -}}
{{- with .hostname -}}{{- $_ := set $spec "hostname" . -}}{{- end -}}
{{- $found := dict "spec" $spec -}}
{{- with include "slurm.said" (default dict .metadata) | fromJson -}}{{- $_ := set $found "metadata" . -}}{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* A Service's template, or nothing. */}}
{{- define "slurm.service" -}}
{{- with include "slurm.said" (default dict .) | fromJson -}}{{- toYaml . -}}{{- end -}}
{{- end -}}

{{/* Parameters: text where there is one, else key=value of each, a list's items joined by commas. text, map, between: what stands between two */}}
{{- define "slurm.parameters" -}}
{{- if .text -}}
{{- .text -}}
{{- else -}}
{{- $found := list -}}
{{- range $key, $value := default dict .map -}}
{{- if kindIs "slice" $value -}}
{{- $found = append $found (printf "%s=%s" $key (join "," $value)) -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $found = append $found (printf "%s=%s" $key (toString $value)) -}}
{{- end -}}
{{- end -}}
{{- join .between $found -}}
{{- end -}}
{{- end -}}

{{/* What slurm.conf has besides: the controller's own lines, and partitions over several node sets. */}}
{{- define "slurm.conf" -}}
{{- $lines := list -}}
{{- with include "slurm.parameters" (dict "text" .Values.controller.extraConf "map" .Values.controller.extraConfMap "between" "\n") -}}{{- $lines = append $lines (trimSuffix "\n" .) -}}{{- end -}}
{{- $root := . -}}
{{- range $name, $partition := .Values.partitions -}}
{{- if $partition.enabled -}}
{{- range $partition.nodesets -}}
{{- if ne . "ALL" -}}
{{- if not (dig . "enabled" false $root.Values.nodesets) -}}
{{- fail (printf "partitions.%s.nodesets names %s, but nodesets.%s is not there or not enabled" $name . .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $more := include "slurm.parameters" (dict "text" $partition.config "map" $partition.configMap "between" " ") -}}
{{- $lines = append $lines (trim (printf "PartitionName=%s Nodes=%s %s" $name (join "," $partition.nodesets) $more)) -}}
{{- end -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end -}}
