{{/* Gives values that are null, such as `podLabels:` with nothing below it, their default or no content. Each template */}}
{{/* begins with it, since Helm takes defaults of a value away that is null. */}}
{{- define "karpenter.fillNulls" -}}
{{- $values := .Values }}
{{- range $name := list "additionalLabels" "additionalAnnotations" "service" "serviceAccount" "serviceMonitor" "prometheusRule" "dashboards" "podDisruptionBudget" "podLabels" "controller" "settings" }}
{{- if not (get $values $name) }}{{ $_ := set $values $name dict }}{{ end }}
{{- end }}
{{- $controller := $values.controller }}
{{- range $name := list "image" "resources" "metrics" "healthProbe" }}
{{- if not (get $controller $name) }}{{ $_ := set $controller $name dict }}{{ end }}
{{- end }}
{{- range $name := list "env" "extraVolumeMounts" "sidecarVolumeMounts" }}
{{- if not (get $controller $name) }}{{ $_ := set $controller $name list }}{{ end }}
{{- end }}
{{- range $name := list "additionalProviders" "additionalClusterRoleRules" }}
{{- if not (get $values $name) }}{{ $_ := set $values $name list }}{{ end }}
{{- end }}
{{- range $default := list
  (list $values "replicas" 2)
  (list $values "logLevel" "info")
  (list $values "logFormat" "json")
  (list $values "logOutputPaths" (list "stdout"))
  (list $values "logErrorOutputPaths" (list "stderr"))
  (list $values.serviceAccount "create" true)
  (list $values.podDisruptionBudget "maxUnavailable" 1)
  (list $controller "containerName" "controller")
  (list $controller.metrics "port" 8080)
  (list $controller.healthProbe "port" 8081)
}}
{{- $section := index $default 0 }}
{{- $name := index $default 1 }}
{{- if kindIs "invalid" (index $section $name) }}{{ $_ := set $section $name (index $default 2) }}{{ end }}
{{- end }}
{{- end }}

{{- define "karpenter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "karpenter.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "karpenter.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "karpenter.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "karpenter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "karpenter.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Labels of a dictionary with root and optionally labels, each once: those by which pods are selected go first, then */}}
{{/* the labels of the object, those of all objects, and those of the chart. */}}
{{- define "karpenter.labels" -}}
{{- $chart := .root.Chart }}
{{- $ofChart := dict
  "helm.sh/chart" (printf "%s-%s" $chart.Name $chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/version" $chart.AppVersion
  "app.kubernetes.io/managed-by" .root.Release.Service
}}
{{- $selector := include "karpenter.selectorLabels" .root | fromYaml }}
{{- merge (dict) $selector (.labels | default dict) .root.Values.additionalLabels $ofChart | toYaml }}
{{- end }}

{{/* Metadata of an object in the namespace of the release; of a dictionary with root, and optionally name, namespace, */}}
{{/* labels and annotations. An empty namespace stands for an object of the cluster. */}}
{{- define "karpenter.metadata" -}}
{{- $namespace := .root.Release.Namespace }}
{{- if hasKey . "namespace" }}{{ $namespace = .namespace }}{{ end -}}
name: {{ .name | default (include "karpenter.fullname" .root) | quote }}
{{- with $namespace }}
namespace: {{ . | quote }}
{{- end }}
labels:
  {{- include "karpenter.labels" . | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .root.Values.additionalAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "karpenter.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "karpenter.fullname" .) }}
{{- else }}
{{- .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{/* The providers as a YAML list. */}}
{{- define "karpenter.providers" -}}
{{- if kindIs "string" .Values.provider }}
{{- without (list .Values.provider) "" | toYaml }}
{{- else }}
{{- .Values.provider | toYaml }}
{{- end }}
{{- end }}

{{- define "karpenter.image" -}}
{{- $image := .Values.controller.image }}
{{- $providers := include "karpenter.providers" . | fromYamlArray }}
{{- $repository := $image.repository }}
{{- if not $repository }}
{{- $name := ternary (first $providers) "all" (eq (len $providers) 1) }}
{{- $repository = printf "%s/karpenter-core-%s" (trimSuffix "/" $image.registry) $name }}
{{- end }}
{{- if and $image.digest (not $image.tag) }}
{{- printf "%s@%s" $repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $repository ($image.tag | default .Chart.AppVersion) }}{{ with $image.digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* Affinity, in which terms of pods without a labelSelector get that of the controller's pods. */}}
{{- define "karpenter.affinity" -}}
{{- $selector := dict "matchLabels" (include "karpenter.selectorLabels" . | fromYaml) }}
{{- $affinity := deepCopy .Values.affinity }}
{{- range $kind := list "podAffinity" "podAntiAffinity" }}
{{- range $term := dig $kind "requiredDuringSchedulingIgnoredDuringExecution" list $affinity }}
{{- if not (hasKey $term "labelSelector") }}{{ $_ := set $term "labelSelector" $selector }}{{ end }}
{{- end }}
{{- range $weighted := dig $kind "preferredDuringSchedulingIgnoredDuringExecution" list $affinity }}
{{- $term := $weighted.podAffinityTerm }}
{{- if not (hasKey $term "labelSelector") }}{{ $_ := set $term "labelSelector" $selector }}{{ end }}
{{- end }}
{{- end }}
{{- toYaml $affinity }}
{{- end }}

{{- define "karpenter.topologySpreadConstraints" -}}
{{- $selector := dict "matchLabels" (include "karpenter.selectorLabels" . | fromYaml) }}
{{- $constraints := deepCopy .Values.topologySpreadConstraints }}
{{- range $constraint := $constraints }}
{{- if not (hasKey $constraint "labelSelector") }}{{ $_ := set $constraint "labelSelector" $selector }}{{ end }}
{{- end }}
{{- toYaml $constraints }}
{{- end }}
