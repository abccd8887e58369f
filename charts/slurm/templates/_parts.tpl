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

{{/* A value as Slurm writes it. Numbers keep all their digits. YAML reads YES and NO without quotes as true and false, and OFF too. key, value */}}
{{- define "slurm.text" -}}
{{- $key := .key -}}
{{- if kindIs "string" .value -}}
{{- .value -}}
{{- else if kindIs "bool" .value -}}
{{- if .value -}}YES{{- else if eq (lower $key) "preemptmode" -}}OFF{{- else -}}NO{{- end -}}
{{- else if kindIs "slice" .value -}}
{{- $found := list -}}
{{- range .value -}}{{- with include "slurm.text" (dict "key" $key "value" .) -}}{{- $found = append $found . -}}{{- end -}}{{- end -}}
{{- join "," $found -}}
{{- else if kindIs "map" .value -}}
{{- include "slurm.parameters" (dict "map" .value "between" ",") -}}
{{- else if not (kindIs "invalid" .value) -}}
{{- toJson .value -}}
{{- end -}}
{{- end -}}

{{/* Parameters: `text` if there is one, else KEY=VALUE for each of `map` that has a value, with `between` between two. */}}
{{- define "slurm.parameters" -}}
{{- if .text -}}
{{- .text -}}
{{- else -}}
{{- $found := list -}}
{{- range $key, $value := default dict .map -}}
{{- with include "slurm.text" (dict "key" $key "value" $value) -}}{{- $found = append $found (printf "%s=%s" $key .) -}}{{- end -}}
{{- end -}}
{{- join .between $found -}}
{{- end -}}
{{- end -}}

{{/* The sets that are enabled, each with the defaults under its own values, as JSON by key. defaults, sets */}}
{{- define "slurm.sets" -}}
{{- $defaults := default dict .defaults -}}
{{- $found := dict -}}
{{- range $key, $own := .sets -}}
{{- $merged := mergeOverwrite (deepCopy $defaults) (deepCopy (default dict $own)) -}}
{{- if $merged.enabled -}}{{- $_ := set $found $key $merged -}}{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- define "slurm.nodesets" -}}
{{- include "slurm.sets" (dict "defaults" .Values.nodesetDefaults "sets" .Values.nodesets) -}}
{{- end -}}

{{- define "slurm.loginsets" -}}
{{- include "slurm.sets" (dict "defaults" .Values.loginsetDefaults "sets" .Values.loginsets) -}}
{{- end -}}

{{/*
Persistence as JSON. storageClassName: null is the default class, and helm leaves out a null of the
chart's own values; "" and "-" are no class, for a volume that exists.
*/}}
{{- define "slurm.persistence" -}}
{{- $found := include "slurm.said" . | fromJson -}}
{{- $class := get . "storageClassName" -}}
{{- if and (hasKey . "storageClassName") (kindIs "string" $class) (has $class (list "" "-")) -}}
{{- $_ := set $found "storageClassName" "" -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* More lines for slurm.conf: the controller's own, and partitions over several NodeSets. */}}
{{- define "slurm.conf" -}}
{{- $lines := list -}}
{{- with include "slurm.parameters" (dict "text" .Values.controller.extraConf "map" .Values.controller.extraConfMap "between" "\n") -}}{{- $lines = append $lines (trimSuffix "\n" .) -}}{{- end -}}
{{- $there := include "slurm.nodesets" . | fromJson -}}
{{- range $name, $partition := .Values.partitions -}}
{{- if ($partition).enabled -}}
{{- if not $partition.nodesets -}}
{{- fail (printf "partitions.%s.nodesets is empty: name NodeSets, or ALL" $name) -}}
{{- end -}}
{{- range $partition.nodesets -}}
{{- if not (or (eq . "ALL") (hasKey $there .)) -}}
{{- fail (printf "partitions.%s.nodesets names %s, but nodesets.%s is not there or not enabled" $name . .) -}}
{{- end -}}
{{- end -}}
{{- $more := include "slurm.parameters" (dict "text" $partition.config "map" $partition.configMap "between" " ") -}}
{{- $lines = append $lines (trim (printf "PartitionName=%s Nodes=%s %s" $name (join "," (uniq $partition.nodesets)) $more)) -}}
{{- end -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end -}}

{{/* Fails for values of the original that would do something there and that this chart does not have. */}}
{{- define "slurm.check" -}}
{{- if ((.Values.controller).ha).enabled -}}
{{- fail "controller.ha.enabled is true, but several slurmctld for one cluster are not supported: set controller.ha.enabled=false" -}}
{{- end -}}
{{- $vendor := default dict .Values.vendor -}}
{{- if dig "nvidia" "dcgm" "enabled" false $vendor -}}
{{- fail "vendor.nvidia.dcgm.enabled is true, but this chart has no scripts for it: write yours into prologScripts and epilogScripts" -}}
{{- end -}}
{{- range $machine := list "a3mega" "a3ultra" -}}
{{- if dig "google" $machine (list) $vendor -}}
{{- fail (printf "vendor.google.%s has entries, but this chart does not read them: write networks, volumes and resources into the NodeSet's metadata, podSpec and slurmd" $machine) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The end of the NOTES: values that are accepted and have no effect. */}}
{{- define "slurm.warnings" -}}
{{- $values := .Values -}}
{{- $found := list -}}
{{- range list "asciiArt" "controller.inplaceReconfigure" "controller.reconfigure" "controller.logfile" "nodesetDefaults.logfile" "loginsetDefaults.initconf" "vendor.nvidia" "vendor.google" -}}
{{- $place := $values -}}
{{- range splitList "." . -}}
{{- $place = get (kindIs "map" $place | ternary $place dict) . -}}
{{- end -}}
{{- if $place -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{- range $field, $sets := dict "logfile" "nodesets" "initconf" "loginsets" -}}
{{- range $key, $own := get $values $sets -}}
{{- if get (default dict $own) $field -}}{{- $found = append $found (printf "%s.%s.%s" $sets $key $field) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- with $found }}

WARNING: these values have no effect here: {{ join ", " . }}.
{{- end }}
{{- end -}}
