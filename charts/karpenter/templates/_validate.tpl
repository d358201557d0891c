{{/* Stops with one message that names every value that is missing or does not fit the others. */}}
{{- define "karpenter.validate" -}}
{{- include "karpenter.fillNulls" . }}
{{- $root := . }}
{{- $values := .Values }}
{{- $settings := $values.settings }}
{{- $controller := $values.controller }}
{{- $table := .Files.Get "files/settings.yaml" | fromYaml }}
{{- $providers := include "karpenter.providers" . | fromYamlArray }}
{{- $variables := list }}
{{- range $controller.env }}{{ $variables = append $variables .name }}{{ end }}
{{- $problems := list }}
{{- if not (or $providers $values.additionalProviders) }}
{{- $problems = append $problems "provider: must be aws, alibabacloud, azure or kwok, or a list of them, such as --set provider=aws" }}
{{- end }}
{{- range $provider := $providers }}
{{- range $required := get $table.required $provider }}
{{- $given := false }}
{{- range $required.env }}{{ if has . $variables }}{{ $given = true }}{{ end }}{{ end }}
{{- if $controller.envFrom }}{{ $given = true }}{{ end }}
{{- if $required.value }}
{{- if get $settings $required.value }}{{ $given = true }}{{ end }}
{{- range $table.settings }}
{{- if and (has .env $required.env) (get $settings .name) }}{{ $given = true }}{{ end }}
{{- end }}
{{- if not $given }}
{{- $problems = append $problems (printf "settings.%s: required by the provider %s" $required.value $provider) }}
{{- end }}
{{- else if not (or $given $values.credentialsSecret) }}
{{- $problems = append $problems (printf "credentialsSecret: the provider %s requires %s; name the Secret that has this key" $provider (first $required.env)) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $setting := $table.settings }}
{{- $readers := list }}
{{- range $setting.providers }}{{ if has . $providers }}{{ $readers = append $readers . }}{{ end }}{{ end }}
{{- if and $providers $setting.providers (not $readers) (hasKey $settings $setting.name) (not (kindIs "invalid" (get $settings $setting.name))) }}
{{- $problems = append $problems (printf "settings.%s: read only by the provider %s, and provider is %s" $setting.name (join ", " $setting.providers) (join ", " $providers)) }}
{{- end }}
{{- end }}
{{- if and $values.additionalProviders (not $controller.image.repository) }}
{{- $problems = append $problems (printf "controller.image.repository: the image that has the provider %s" (join ", " $values.additionalProviders)) }}
{{- else if not (or $controller.image.registry $controller.image.repository) }}
{{- $name := ternary (first $providers) "all" (eq (len $providers) 1) }}
{{- $problems = append $problems (printf "controller.image.registry: where the image karpenter-core-%s is, such as registry.example.com/team; or controller.image.repository" $name) }}
{{- end }}
{{- if and (has "kwok" $providers) (gt (int $values.replicas) 1) (not (get $settings "kwokStateFile")) (not (has "KWOK_STATE_FILE" $variables)) }}
{{- $problems = append $problems "replicas: must be 1 with the provider kwok, whose simulated cloud is a file of the pod, unless settings.kwokStateFile is on a volume that all pods share" }}
{{- end }}
{{- if and (gt (int $values.replicas) 1) (include "karpenter.isOn" (dict "root" $root "name" "disableLeaderElection")) }}
{{- $problems = append $problems "settings.disableLeaderElection: needs replicas=1, for all replicas would act at once" }}
{{- end }}
{{- if eq (int $controller.metrics.port) (int $controller.healthProbe.port) }}
{{- $problems = append $problems "controller.healthProbe.port: is the port of controller.metrics too; a port serves one of them" }}
{{- end }}
{{- $address := include "karpenter.setting" (dict "root" $root "name" "healthProbeBindAddress") }}
{{- if or (hasPrefix "127." $address) (has $address (list "localhost" "::1")) }}
{{- $problems = append $problems (printf "settings.healthProbeBindAddress: %s is reached only from inside the pod, and the kubelet asks from outside" $address) }}
{{- end }}
{{- $served := concat $providers $values.additionalProviders | join "," }}
{{- range $given := $controller.env }}
{{- if and (eq $given.name "PROVIDERS") (hasKey $given "value") (ne ($given.value | toString | nospace) $served) }}
{{- $problems = append $problems (printf "controller.env: PROVIDERS is not %s, for which the permissions are; set provider and additionalProviders" $served) }}
{{- end }}
{{- range $variable, $part := dict "METRICS_PORT" "metrics" "HEALTH_PROBE_PORT" "healthProbe" }}
{{- if and (eq $given.name $variable) (hasKey $given "value") (ne (toString $given.value) (include "karpenter.scalar" (get $controller $part).port)) }}
{{- $problems = append $problems (printf "controller.env: %s is not controller.%s.port, at which the pod is asked; set that value" $variable $part) }}
{{- end }}
{{- end }}
{{- if and (eq $given.name "LEADER_ELECTION_NAMESPACE") (ne ($given.value | default "" | toString) $root.Release.Namespace) (not (has "LEADER_ELECTION_KUBECONFIG" $variables)) }}
{{- $problems = append $problems "controller.env: LEADER_ELECTION_NAMESPACE is not the namespace of the release, where the permissions on the Lease are; leave it out" }}
{{- end }}
{{- end }}
{{- if and (not $values.serviceAccount.create) (not $values.serviceAccount.name) }}
{{- $problems = append $problems "serviceAccount.name: required, since serviceAccount.create is false" }}
{{- end }}
{{- with $problems }}
{{- printf "these values do not fit:\n  - %s\n" (join "\n  - " .) | fail }}
{{- end }}
{{- end }}
