{{/* The text of a number, truth value or string: YAML's numbers are floats here, and 67108864 is not 6.7108864e+07. */}}
{{- define "karpenter.scalar" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{/* The text of a setting; of a dictionary with value and form (files/settings.yaml). */}}
{{- define "karpenter.settingText" -}}
{{- if kindIs "map" .value }}
{{- if eq .form "object" }}
{{- toJson .value }}
{{- else }}
{{- $pairs := list }}
{{- range $key, $item := .value }}
{{- if eq $.form "gates" }}{{ $key = printf "%s%s" (upper (substr 0 1 $key)) (substr 1 -1 $key) }}{{ end }}
{{- $pairs = append $pairs (printf "%s=%s" $key (include "karpenter.scalar" $item)) }}
{{- end }}
{{- join "," $pairs }}
{{- end }}
{{- else if and (kindIs "slice" .value) (eq .form "object") }}
{{- toJson .value }}
{{- else if kindIs "slice" .value }}
{{- join "," .value }}
{{- else }}
{{- include "karpenter.scalar" .value }}
{{- end }}
{{- end }}

{{/* The text of a setting that decides about other objects; of a dictionary with root and name. A variable of */}}
{{/* controller.env takes precedence, as in the container. */}}
{{- define "karpenter.setting" -}}
{{- $name := .name }}
{{- $root := .root }}
{{- $found := dict "text" (get $root.Values.settings $name | default "" | toString) }}
{{- range ($root.Files.Get "files/settings.yaml" | fromYaml).settings }}
{{- if eq .name $name }}
{{- $variable := .env }}
{{- range $root.Values.controller.env }}
{{- if and (eq .name $variable) (hasKey . "value") }}{{ $_ := set $found "text" .value }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- $found.text }}
{{- end }}

{{/* "true" if a truth value of the settings is on, in any form that the controller reads in a variable; else empty. */}}
{{- define "karpenter.isOn" -}}
{{- if has (include "karpenter.setting" . | lower) (list "true" "t" "1") }}true{{ end }}
{{- end }}

{{/* The variables of the container as a YAML list: those of the chart, unless controller.env has them too. */}}
{{- define "karpenter.env" -}}
{{- $settings := .Values.settings }}
{{- $controller := .Values.controller }}
{{- $entries := list
  (dict "name" "PROVIDERS" "value" (concat (include "karpenter.providers" . | fromYamlArray) .Values.additionalProviders | join ","))
  (dict "name" "POD_NAME" "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.name")))
  (dict "name" "SYSTEM_NAMESPACE" "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.namespace")))
  (dict "name" "METRICS_PORT" "value" (include "karpenter.scalar" $controller.metrics.port))
  (dict "name" "HEALTH_PROBE_PORT" "value" (include "karpenter.scalar" $controller.healthProbe.port))
  (dict "name" "CACHE_FOLDER" "value" "/var/cache/karpenter")
  (dict "name" "LOG_LEVEL" "value" .Values.logLevel)
  (dict "name" "LOG_FORMAT" "value" .Values.logFormat)
  (dict "name" "LOG_OUTPUT_PATHS" "value" (join "," .Values.logOutputPaths))
  (dict "name" "LOG_ERROR_OUTPUT_PATHS" "value" (join "," .Values.logErrorOutputPaths))
}}
{{- range $variable, $resource := dict "CPU_REQUESTS" "requests.cpu" "MEMORY_LIMIT" "limits.memory" }}
{{- $path := splitList "." $resource }}
{{- if get (get $controller.resources (first $path) | default dict) (last $path) }}
{{- $divisor := ternary "1m" "1" (eq $resource "requests.cpu") }}
{{- $of := dict "containerName" $controller.containerName "resource" $resource "divisor" $divisor }}
{{- $entries = append $entries (dict "name" $variable "valueFrom" (dict "resourceFieldRef" $of)) }}
{{- end }}
{{- end }}
{{- range (.Files.Get "files/settings.yaml" | fromYaml).settings }}
{{- $value := get $settings .name }}
{{- if and (hasKey $settings .name) (not (kindIs "invalid" $value)) }}
{{- $text := include "karpenter.settingText" (dict "value" $value "form" .form) }}
{{- $entries = append $entries (dict "name" .env "value" $text) }}
{{- end }}
{{- end }}
{{- /* RRSA within the VPC: the variables of the SDK that lead to the STS endpoint there. */}}
{{- if eq (get $settings "alibabaCloudNetwork" | default "") "vpc" }}
{{- $entries = append $entries (dict "name" "ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED" "value" "true") }}
{{- with get $settings "regionID" }}
{{- $entries = append $entries (dict "name" "ALIBABA_CLOUD_STS_REGION" "value" .) }}
{{- end }}
{{- end }}
{{- $overridden := list }}
{{- range $controller.env }}{{ $overridden = append $overridden .name }}{{ end }}
{{- $kept := list }}
{{- range $entries }}
{{- if not (has .name $overridden) }}{{ $kept = append $kept . }}{{ end }}
{{- end }}
{{- concat $kept $controller.env | toYaml }}
{{- end }}
