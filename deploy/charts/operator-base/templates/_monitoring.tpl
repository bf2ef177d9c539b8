{{- /*
Roles of readers, ServiceMonitor, PrometheusRule and dashboard.
*/ -}}

{{- /*
Whether an object of the Prometheus operator is rendered: an empty text if not. Takes a dict with `context` and `kind`.
*/ -}}
{{- define "operator-base.isRendered" -}}
{{- $mode := .context.Values.metrics.renderMode -}}
{{- $isServed := .context.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind) -}}
{{- if or $isServed (eq $mode "alwaysRender") -}}
true
{{- else if eq $mode "failIfMissing" -}}
{{- fail (printf "metrics.renderMode=failIfMissing: the cluster does not serve %s; install the CRDs of the Prometheus operator first, or write skipIfMissing" .kind) -}}
{{- end -}}
{{- end -}}

{{- define "operator-base.metricsReader" -}}
{{- $reader := .Values.metrics.reader -}}
{{- $name := printf "%s-metrics-reader" (include "operator-base.fullname" .) -}}
{{- if $reader.create -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- include "operator-base.metadata" (dict "context" . "name" $name "cluster" true) | nindent 2 }}
rules:
- nonResourceURLs: [/metrics, /metrics/slis]
  verbs: [get]
{{- with $reader.serviceAccounts }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- include "operator-base.metadata" (dict "context" $ "name" $name "cluster" true) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name | quote }}
subjects:
{{- range . }}
- kind: ServiceAccount
  name: {{ .name | quote }}
  namespace: {{ .namespace | quote }}
{{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{- /* Takes a dict with `context`. */ -}}
{{- define "operator-base.serviceMonitor" -}}
{{- $monitor := .context.Values.metrics.serviceMonitor -}}
{{- $fullname := include "operator-base.fullname" .context -}}
{{- $isEnabled := and $monitor.enabled .context.Values.metrics.service.enabled -}}
{{- if and $isEnabled (include "operator-base.isRendered" (dict "context" .context "kind" "ServiceMonitor")) -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  {{- include "operator-base.metadata" (dict "context" .context
    "namespace" .context.Values.metrics.namespace "labels" $monitor.labels) | nindent 2 }}
spec:
  {{- if .context.Values.metrics.namespace }}
  namespaceSelector:
    matchNames:
    - {{ include "operator-base.namespace" .context | quote }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "operator-base.selectorLabels" .context | nindent 6 }}
  endpoints:
  - port: https
    scheme: https
    path: /metrics
    interval: {{ $monitor.interval }}
    scrapeTimeout: {{ $monitor.scrapeTimeout }}
    bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
    tlsConfig:
      {{- with .context.Values.tls.secretName }}
      serverName: {{ $fullname }}.{{ include "operator-base.namespace" $.context }}.svc
      ca:
        secret:
          name: {{ . | quote }}
          key: ca.crt
      {{- else }}
      # The server generates its certificate in memory.
      insecureSkipVerify: true
      {{- end }}
    {{- with $monitor.relabelings }}
    relabelings:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $monitor.metricRelabelings }}
    metricRelabelings:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end -}}
{{- end -}}

{{- /*
Takes a dict with `context`, `shards` (the number of shards; 0 if one replica leads), and optionally `alerts`, a list in
addition to the common alerts. Each `for` is longer than the rate window of its alert, so that a single failure does not
fire, and each window contains four scrapes at an interval of 60 seconds.
*/ -}}
{{- define "operator-base.prometheusRule" -}}
{{- $rule := .context.Values.metrics.prometheusRule -}}
{{- $name := include "operator-base.fullname" .context -}}
{{- $job := include "operator-base.job" .context -}}
{{- if and $rule.enabled (include "operator-base.isRendered" (dict "context" .context "kind" "PrometheusRule")) -}}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  {{- include "operator-base.metadata" (dict "context" .context
    "namespace" .context.Values.metrics.namespace "labels" $rule.labels) | nindent 2 }}
spec:
  groups:
  - name: {{ $name | quote }}
    rules:
    {{- $errors := printf "sum by (job, namespace, controller) (rate(windlass_reconcile_total{%s,result=~\"error|terminal|panic\"}[10m]))" $job }}
    {{- $reconciles := printf "sum by (job, namespace, controller) (rate(windlass_reconcile_total{%s}[10m]))" $job }}
    {{- $writes := printf "%s,verb=~\"create|update|patch|delete|deletecollection\"" $job }}
    {{- $rejected := printf "sum by (job, namespace, identity, verb, resource) (rate(windlass_client_requests_total{%s,code=~\"400|403|413|422\"}[10m]))" $writes }}
    {{- $written := printf "sum by (job, namespace, identity, verb, resource) (rate(windlass_client_requests_total{%s}[10m]))" $writes }}
    {{- $alerts := list
      (dict "name" "NoMetrics" "for" "5m" "severity" "critical"
        "expr" (printf "absent(up{%s}) or sum by (job, namespace) (up{%s}) == 0" $job $job)
        "summary" "Prometheus scrapes no replica, so its other alerts cannot fire.")
      (dict "name" "TargetDown" "for" "10m" "severity" "warning" "expr" (printf "up{%s} == 0" $job)
        "summary" "Prometheus cannot scrape a replica, so its metrics are missing.") }}
    {{- if .shards }}
    {{- $alerts = concat $alerts (list
      (dict "name" "ShardNotHeld" "for" "5m" "severity" "critical"
        "expr" (printf "sum by (job, namespace) (windlass_shards_held{%s}) < %d" $job (int64 .shards))
        "summary" (printf "Scraped replicas hold {{ $value }} of %d shards; objects of the other shards are not reconciled." (int64 .shards)))
      (dict "name" "ShardHeldTwice" "for" "2m" "severity" "critical"
        "expr" (printf "sum by (job, namespace, name) (leader_election_master_status{%s}) > 1" $job)
        "summary" "More than one replica holds a shard, so its objects are reconciled more than once.")) }}
    {{- else }}
    {{- $alerts = concat $alerts (list
      (dict "name" "NoLeader" "for" "2m" "severity" "critical"
        "expr" (printf "sum by (job, namespace) (leader_election_master_status{%s}) == 0" $job)
        "summary" "No scraped replica leads. If no other replica leads, objects are not reconciled.")
      (dict "name" "SeveralLeaders" "for" "2m" "severity" "critical"
        "expr" (printf "sum by (job, namespace) (leader_election_master_status{%s}) > 1" $job)
        "summary" "More than one replica leads, so objects are reconciled more than once.")) }}
    {{- end }}
    {{- $alerts = concat $alerts (list
      (dict "name" "ReconcileErrors" "for" "15m" "severity" "warning"
        "expr" (printf "%s / %s > 0.1 and %s > 1/60" $errors $reconciles $errors)
        "summary" "More than 10 % of the reconciles of a controller fail, and more than one a minute.")
      (dict "name" "WritesRejected" "for" "15m" "severity" "warning"
        "expr" (printf "%s / %s > 0.1 and %s > 1/60" $rejected $written $rejected)
        "summary" "The API server rejects more than 10 % of the writes of an identity to a resource, and more than one a minute.")
      (dict "name" "EventsFailed" "for" "15m" "severity" "warning"
        "expr" (printf "rate(windlass_events_failed_total{%s}[10m]) > 0" $job)
        "summary" "The API server rejects Events or is unreachable, so users do not see them.")
      (dict "name" "QuarantinedKeys" "for" "5m" "severity" "warning" "expr" (printf "windlass_quarantined_keys{%s} > 0" $job)
        "summary" "Reconciles of a key panic; /debug/controllers/<name> lists the keys.")
      (dict "name" "UndecodableKeys" "for" "5m" "severity" "warning" "expr" (printf "windlass_undecodable_keys{%s} > 0" $job)
        "summary" "An object cannot be decoded, so its key is not reconciled.")
      (dict "name" "StuckWorker" "for" "2m" "severity" "warning"
        "expr" (printf "workqueue_longest_running_processor_seconds{%s} > 300" $job)
        "summary" "A reconcile has run for more than 5 minutes: the worker is stuck, or the API server is slow.")
      (dict "name" "CacheCannotList" "for" "10m" "severity" "critical"
        "expr" (printf "rate(windlass_informer_list_errors_total{%s}[5m]) > 0" $job)
        "summary" "Lists of a cache have failed for 10 minutes: the API server is unreachable, or a permission is missing.")) }}
    {{- range $alert := concat $alerts (default list .alerts) }}
    - alert: Windlass{{ .name }}
      expr: {{ .expr | quote }}
      for: {{ .for }}
      labels:
        {{- toYaml (mergeOverwrite (dict "severity" .severity) $rule.alertLabels) | nindent 8 }}
      annotations:
        summary: {{ .summary | quote }}
        {{- with $rule.runbookUrl }}
        runbook_url: {{ printf "%s#%s" . (lower (print "windlass" $alert.name)) | quote }}
        {{- end }}
    {{- end }}
    {{- with $rule.extraRules }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
{{- end -}}

{{- /* The labels of the release's metrics in PromQL: `job` is the name of the Service. */ -}}
{{- define "operator-base.job" -}}
{{- printf `job="%s",namespace="%s"` (include "operator-base.fullname" .) (include "operator-base.namespace" .) -}}
{{- end -}}

{{- /* ConfigMap with the dashboard of the library chart, under a title and a UID of the release. */ -}}
{{- define "operator-base.dashboard" -}}
{{- $values := .Values.metrics.dashboard -}}
{{- if $values.enabled -}}
{{- $name := include "operator-base.fullname" . -}}
{{- $namespace := include "operator-base.namespace" . -}}
{{- $file := (index .Subcharts "operator-base").Files.Get "files/dashboard.json" -}}
{{- $dashboard := mustFromJson $file -}}
{{- $_ := set $dashboard "title" (printf "Windlass: %s/%s" $namespace $name) -}}
{{- $_ := set $dashboard "uid" (printf "%s/%s" $namespace $name | sha256sum | trunc 32) -}}
{{- range $dashboard.templating.list -}}
{{- $selected := get (dict "job" $name "namespace" $namespace) .name -}}
{{- if $selected }}{{ $_ := set . "current" (dict "text" $selected "value" $selected) }}{{ end -}}
{{- end -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "operator-base.metadata" (dict "context" . "name" (printf "%s-dashboard" $name)
    "namespace" .Values.metrics.namespace "labels" $values.labels "annotations" $values.annotations) | nindent 2 }}
data:
  {{ printf "%s.json" $name | quote }}: |
    {{- $dashboard | mustToRawJson | nindent 4 }}
{{- end -}}
{{- end -}}
