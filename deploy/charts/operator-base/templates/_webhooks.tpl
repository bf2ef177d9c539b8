{{- /*
Service and configurations of webhooks, from the output of `<program> manifests webhook`. Takes a dict with `context` and
`manifests`, which is empty for a program without webhooks.

The name of the Service is that of the program, because the replicas issue certificates for it. The configurations have the
name of the release, which the argument `--webhook-configuration` passes to the program: the replicas write the authority
into them. With `watchNamespaces` the webhooks review objects in these namespaces only, so that another release can serve
others. The chart does not contain the field `caBundle`, so an upgrade does not change it.
*/ -}}
{{- define "operator-base.webhooks" -}}
{{- $context := .context -}}
{{- $namespace := include "operator-base.namespace" $context | quote -}}
{{- $text := .manifests | replace "namespace-of-release" $namespace
  | replace "name-of-release" (include "operator-base.fullname" $context | quote) -}}
{{- range $document := splitList "---\n" $text }}
{{- with fromYaml $document }}
{{- with .Error }}{{ fail . }}{{ end -}}
{{- $_ := set .metadata "labels" (include "operator-base.labels" $context | fromYaml) -}}
{{- if eq .kind "Service" }}
{{- $_ := set .spec "selector" (include "operator-base.selectorLabels" $context | fromYaml) -}}
{{- range .spec.ports }}{{ $_ := set . "targetPort" "webhook" }}{{ end -}}
{{- end }}
{{- if $context.Values.watchNamespaces }}
{{- $selected := dict "key" "kubernetes.io/metadata.name" "operator" "In" "values" $context.Values.watchNamespaces -}}
{{- range .webhooks }}
{{- $selector := default dict .namespaceSelector -}}
{{- $_ := set $selector "matchExpressions" (append (default list $selector.matchExpressions) $selected) -}}
{{- $_ := set . "namespaceSelector" $selector -}}
{{- end }}
{{- end }}
---
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}
