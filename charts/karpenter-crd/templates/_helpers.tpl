{{/* Values that are null, as keys without content, have their defaults. */}}
{{- define "karpenter-crd.providers" -}}
{{- if kindIs "invalid" .Values.provider }}{{ list "alibabacloud" "aws" "azure" "kwok" | toYaml }}
{{- else if kindIs "string" .Values.provider }}{{ list .Values.provider | toYaml }}
{{- else }}{{ .Values.provider | toYaml }}{{ end }}
{{- end }}

{{/* "true" unless the value keep is false; else empty. */}}
{{- define "karpenter-crd.keep" -}}
{{- if ne (toString .Values.keep) "false" }}true{{ end }}
{{- end }}

{{/* Labels and annotations of a CRD, each once. */}}
{{- define "karpenter-crd.metadata" -}}
{{- $kept := dict }}
{{- if include "karpenter-crd.keep" . }}{{ $_ := set $kept "helm.sh/resource-policy" "keep" }}{{ end }}
{{- with merge (dict) $kept (.Values.additionalAnnotations | default dict) -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{ end -}}
{{- $ofChart := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/name" "karpenter"
  "app.kubernetes.io/instance" .Release.Name
  "app.kubernetes.io/version" .Chart.AppVersion
  "app.kubernetes.io/managed-by" .Release.Service
-}}
labels:
  {{- merge (dict) (.Values.additionalLabels | default dict) $ofChart | toYaml | nindent 2 }}
{{- end }}
