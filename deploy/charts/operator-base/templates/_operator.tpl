{{- /*
All objects of an operator that `windlass::run` runs. Takes a dict with `context` and `process`, the name of the program.
The chart contains the output of the program, with placeholders for names of the release:
  files/crds.yaml: `manifests crd`
  files/rbac.yaml: `manifests rbac --per-controller --namespace=namespace-of-release
    --webhook-configuration=name-of-release`
  files/rbac-namespaced.yaml: the same with `--watch-namespaces=namespace-of-objects`, for charts with `watchNamespaces` in values
  files/webhooks.yaml: `manifests webhook --namespace=namespace-of-release --webhook-configuration=name-of-release`, if the
    program has webhooks
*/ -}}
{{- define "operator-base.operator" -}}
{{- $values := .context.Values -}}
{{- $address := ternary (printf "[%s]" $values.bindAddress) $values.bindAddress (contains ":" $values.bindAddress) -}}
{{- $args := list (printf "--address=%s:%d" $address (int64 $values.port)) (printf "--log-format=%s" $values.logFormat) -}}
{{- $webhooks := .context.Files.Get "files/webhooks.yaml" -}}
{{- $ports := list -}}
{{- if $webhooks -}}
{{- $args = append $args (printf "--webhook-address=%s:%d" $address (int64 $values.webhook.port)) -}}
{{- $args = append $args (printf "--webhook-configuration=%s" (include "operator-base.fullname" .context)) -}}
{{- $ports = append $ports (dict "name" "webhook" "containerPort" (int64 $values.webhook.port) "protocol" "TCP") -}}
{{- end -}}
{{- $rbac := "files/rbac.yaml" -}}
{{- with $values.watchNamespaces -}}
{{- $args = append $args (printf "--watch-namespaces=%s" (join "," .)) -}}
{{- $rbac = "files/rbac-namespaced.yaml" -}}
{{- end -}}
{{- include "operator-base.crds" (dict "context" .context "manifests" (.context.Files.Get "files/crds.yaml")) }}
---
{{ include "operator-base.serviceAccount" .context }}
{{- include "operator-base.rbac" (dict "context" .context "process" .process "manifests" (.context.Files.Get $rbac)) }}
---
{{ include "operator-base.workload" (dict "context" .context "args" $args "port" $values.port "ports" $ports) }}
---
{{ include "operator-base.podDisruptionBudget" .context }}
---
{{ include "operator-base.service" (dict "context" .context) }}
---
{{ include "operator-base.networkPolicy" (dict "context" .context "port" $values.port "ports" $ports) }}
---
{{ include "operator-base.metricsReader" .context }}
---
{{ include "operator-base.serviceMonitor" (dict "context" .context) }}
---
{{ include "operator-base.prometheusRule" (dict "context" .context "shards" 0) }}
---
{{ include "operator-base.dashboard" .context }}
{{- include "operator-base.webhooks" (dict "context" .context "manifests" $webhooks) }}
{{ include "operator-base.extraObjects" .context }}
{{- end -}}
