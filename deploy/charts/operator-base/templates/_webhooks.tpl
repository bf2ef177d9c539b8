{{- /*
Service and configurations of webhooks, from the output of `<program> manifests webhook`. Takes a dict with `context` and
`manifests`, which is empty for a program without webhooks.

The names are those of the program: the replicas issue certificates for the name of the Service, and write them into the
configurations of these names. So a cluster can contain one release of a program with webhooks. The chart does not
contain the field `caBundle`, so an upgrade does not change it.
*/ -}}
{{- define "operator-base.webhooks" -}}
{{- $context := .context -}}
{{- $namespace := include "operator-base.namespace" $context | quote -}}
{{- range $document := splitList "---\n" (replace "namespace-of-release" $namespace .manifests) }}
{{- with fromYaml $document }}
{{- with .Error }}{{ fail . }}{{ end -}}
{{- $_ := set .metadata "labels" (include "operator-base.labels" $context | fromYaml) -}}
{{- if eq .kind "Service" }}
{{- $_ := set .spec "selector" (include "operator-base.selectorLabels" $context | fromYaml) -}}
{{- range .spec.ports }}{{ $_ := set . "targetPort" "webhook" }}{{ end -}}
{{- end }}
---
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}
