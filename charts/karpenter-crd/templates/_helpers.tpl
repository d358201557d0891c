{{- define "karpenter-crd.providers" -}}
{{- if kindIs "string" .Values.provider }}{{ list .Values.provider | toYaml }}{{ else }}{{ .Values.provider | toYaml }}{{ end }}
{{- end }}

{{- define "karpenter-crd.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: karpenter
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}
