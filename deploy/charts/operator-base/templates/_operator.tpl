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
{{- include "operator-base.validateArguments" (dict "context" .context "values" (dict
  "address" "bindAddress or port" "watch-namespaces" "watchNamespaces" "namespaces" "watchNamespaces" "lease-namespace" "namespaceOverride"
  "tls-cert-file" "tls.secretName" "tls-private-key-file" "tls.secretName" "install-crds" "crds.enabled" "log-format" "logFormat"
  "webhook-address" "webhook.port" "webhook-configuration" "fullnameOverride"
  "webhook-cert-file" "webhook.secretName" "webhook-key-file" "webhook.secretName")) -}}
{{- range $argument := .context.Values.extraArgs -}}
{{- if and (regexMatch "^--leader[-_]elect=" $argument) (not (regexMatch "^[^=]+=true$" $argument)) -}}
{{ fail (printf "extraArgs: with %s more than one Pod can act at a time; remove it" $argument) }}
{{- end -}}
{{- end -}}
{{- $values := .context.Values -}}
{{- $address := ternary (printf "[%s]" $values.bindAddress) $values.bindAddress (contains ":" $values.bindAddress) -}}
{{- $args := list (printf "--address=%s:%d" $address (int64 $values.port)) (printf "--log-format=%s" $values.logFormat) -}}
{{- $webhooks := .context.Files.Get "files/webhooks.yaml" -}}
{{- $ports := list -}}
{{- $volumes := list -}}
{{- $mounts := list -}}
{{- with $values.tls.secretName -}}
{{- $args = concat $args (list "--tls-cert-file=/etc/tls/tls.crt" "--tls-private-key-file=/etc/tls/tls.key") -}}
{{- $volumes = append $volumes (dict "name" "tls" "secret" (dict "secretName" . "defaultMode" 288)) -}}
{{- $mounts = append $mounts (dict "name" "tls" "mountPath" "/etc/tls" "readOnly" true) -}}
{{- end -}}
{{- if $webhooks -}}
{{- $args = append $args (printf "--webhook-address=%s:%d" $address (int64 $values.webhook.port)) -}}
{{- $args = append $args (printf "--webhook-configuration=%s" (include "operator-base.fullname" .context)) -}}
{{- $ports = append $ports (dict "name" "webhook" "containerPort" (int64 $values.webhook.port) "protocol" "TCP") -}}
{{- with $values.webhook.secretName -}}
{{- $args = concat $args (list "--webhook-cert-file=/etc/webhook/tls.crt" "--webhook-key-file=/etc/webhook/tls.key") -}}
{{- $volumes = append $volumes (dict "name" "webhook" "secret" (dict "secretName" . "defaultMode" 288)) -}}
{{- $mounts = append $mounts (dict "name" "webhook" "mountPath" "/etc/webhook" "readOnly" true) -}}
{{- end -}}
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
{{ include "operator-base.workload" (dict "context" .context "args" $args "port" $values.port "ports" $ports
  "volumes" $volumes "volumeMounts" $mounts) }}
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
---
{{ include "operator-base.flowSchemas" (dict "context" .context "leaseNamespace" (include "operator-base.namespace" .context)) }}
{{- include "operator-base.webhooks" (dict "context" .context "manifests" $webhooks) }}
{{ include "operator-base.extraObjects" .context }}
{{- end -}}

{{- /*
Rejects arguments that contradict other values. Takes a dict with `context` and `values`, which contains the value to set
instead of each flag. `leader-elect` includes all flags that begin with it.
*/ -}}
{{- define "operator-base.validateArguments" -}}
{{- $values := .values -}}
{{- range $argument := .context.Values.extraArgs -}}
{{- $flag := regexFind "^--[^=]+" $argument | trimPrefix "--" | replace "_" "-" -}}
{{- $value := get $values (ternary "leader-elect" $flag (hasPrefix "leader-elect" $flag)) -}}
{{- if $value }}{{ fail (printf "extraArgs: %s bypasses the roles and the checks of the chart; set the value %s" $argument $value) }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* The text of NOTES.txt. Takes a dict with `context` and `process`. */ -}}
{{- define "operator-base.notes" -}}
{{- $values := .context.Values -}}
{{- $namespace := include "operator-base.namespace" .context -}}
{{ .context.Chart.Name }} {{ .context.Chart.AppVersion }} is installed as {{ $values.kind }} {{ $namespace }}/{{ include "operator-base.fullname" .context }}.

Check that its Pods are ready, and that one of them leads:

  kubectl -n {{ $namespace }} rollout status {{ lower $values.kind }} {{ include "operator-base.fullname" .context }}
  kubectl -n {{ $namespace }} get lease {{ .process }}
{{- include "operator-base.warnings" . }}
{{- end -}}

{{- /* Warnings about values, for NOTES.txt. Takes a dict with `context` and `process`. */ -}}
{{- define "operator-base.warnings" -}}
{{- $values := .context.Values -}}
{{- if not $values.image.digest }}

WARNING: image.digest is not set; a tag can be moved to another image.
{{- end }}
{{- if not $values.rbac.create }}

WARNING: rbac.create is false; create the permissions by `{{ .process }} manifests rbac`.
{{- end }}
{{- if or $values.metrics.serviceMonitor.enabled $values.metrics.prometheusRule.enabled }}
{{- if not (include "operator-base.isRendered" (dict "context" .context "kind" "ServiceMonitor")) }}

WARNING: the cluster does not serve ServiceMonitor and PrometheusRule, so the release has neither; after the
installation of the Prometheus operator, upgrade the release.
{{- end }}
{{- end }}
{{- end -}}
