{{- /*
Service and configurations of webhooks, from the output of `<program> manifests webhook`. Takes a dict with `context` and
`manifests`, which is empty for a program without webhooks.

The name of the Service is that of the program, because the replicas issue certificates for it. The configurations have the
name of the release, which the argument `--webhook-configuration` passes to the program: the replicas write the authority
into them. With `watchNamespaces` the webhooks review objects in these namespaces only, so that another release can serve
others. Objects without a namespace are reviewed by each release: the API server ignores the selector for them. The chart does not contain the field `caBundle`, so an upgrade does not change it.

Values: `webhook.failurePolicy`, `webhook.timeoutSeconds`, `webhook.namespaceSelector` and `webhook.annotations`.
*/ -}}
{{- define "operator-base.webhooks" -}}
{{- $context := .context -}}
{{- $values := $context.Values.webhook -}}
{{- $selected := default list $values.namespaceSelector.matchExpressions -}}
{{- with $context.Values.watchNamespaces -}}
{{- $selected = append $selected (dict "key" "kubernetes.io/metadata.name" "operator" "In" "values" .) -}}
{{- end -}}
{{- $namespace := include "operator-base.namespace" $context | quote -}}
{{- $text := .manifests | replace "namespace-of-release" $namespace
  | replace "name-of-release" (include "operator-base.fullname" $context | quote) -}}
{{- range $document := splitList "---\n" $text }}
{{- with fromYaml $document }}
{{- with .Error }}{{ fail . }}{{ end -}}
{{- $isService := eq .kind "Service" -}}
{{- $annotations := ternary dict $values.annotations $isService -}}
{{- $_ := set . "metadata" (include "operator-base.metadata"
  (dict "context" $context "name" .metadata.name "cluster" (not $isService) "annotations" $annotations) | fromYaml) -}}
{{- if $isService }}
{{- $_ := set .spec "selector" (include "operator-base.selectorLabels" $context | fromYaml) -}}
{{- range .spec.ports }}{{ $_ := set . "targetPort" "webhook" }}{{ end -}}
{{- end }}
{{- range $webhook := .webhooks }}
{{- with $values.failurePolicy }}{{ $_ := set $webhook "failurePolicy" . }}{{ end -}}
{{- with $values.timeoutSeconds }}{{ $_ := set $webhook "timeoutSeconds" . }}{{ end -}}
{{- $selector := default dict .namespaceSelector -}}
{{- with concat (default list $selector.matchExpressions) $selected }}{{ $_ := set $selector "matchExpressions" . }}{{ end -}}
{{- with $values.namespaceSelector.matchLabels }}{{ $_ := set $selector "matchLabels" (merge (deepCopy .) (default dict $selector.matchLabels)) }}{{ end -}}
{{- with $selector }}{{ $_ := set $webhook "namespaceSelector" . }}{{ end -}}
{{- end }}
---
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}
