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
app.kubernetes.io/name: {{ include "karpenter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "karpenter.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "karpenter.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Metadata of an object in the namespace of the release; of a dictionary with root, and optionally name, namespace, */}}
{{/* labels and annotations. An empty namespace stands for an object of the cluster. */}}
{{- define "karpenter.metadata" -}}
{{- $namespace := .root.Release.Namespace }}
{{- if hasKey . "namespace" }}{{ $namespace = .namespace }}{{ end -}}
name: {{ .name | default (include "karpenter.fullname" .root) }}
{{- with $namespace }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "karpenter.labels" .root | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
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
