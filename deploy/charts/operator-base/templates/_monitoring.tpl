{{- /*
Roles of readers, ServiceMonitor and PrometheusRule. The last two are rendered only if the cluster serves their kinds.
*/ -}}

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

{{- /* Takes a dict with `context`, and optionally `caSecret`, the Secret with the CA of the server in `ca.crt`. */ -}}
{{- define "operator-base.serviceMonitor" -}}
{{- $monitor := .context.Values.metrics.serviceMonitor -}}
{{- $served := .context.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/ServiceMonitor" -}}
{{- $fullname := include "operator-base.fullname" .context -}}
{{- if and $monitor.enabled $served .context.Values.metrics.service.enabled -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ $fullname | quote }}
  namespace: {{ include "operator-base.namespace" .context | quote }}
  labels:
    {{- $labels := include "operator-base.labels" .context | fromYaml }}
    {{- toYaml (mergeOverwrite (deepCopy $monitor.labels) $labels) | nindent 4 }}
spec:
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
      {{- if .caSecret }}
      serverName: {{ $fullname }}.{{ include "operator-base.namespace" .context }}.svc
      ca:
        secret:
          name: {{ .caSecret | quote }}
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

{{- /* Takes a dict with `context`, `shards` (bool), and optionally `rules`, a list in addition to the common rules. */ -}}
{{- define "operator-base.prometheusRule" -}}
{{- $rule := .context.Values.metrics.prometheusRule -}}
{{- $served := .context.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/PrometheusRule" -}}
{{- $name := include "operator-base.fullname" .context -}}
{{- $job := printf `job="%s",namespace="%s"` $name (include "operator-base.namespace" .context) -}}
{{- if and $rule.enabled $served -}}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {{ $name | quote }}
  namespace: {{ include "operator-base.namespace" .context | quote }}
  labels:
    {{- $labels := include "operator-base.labels" .context | fromYaml }}
    {{- toYaml (mergeOverwrite (deepCopy $rule.labels) $labels) | nindent 4 }}
spec:
  groups:
  - name: {{ $name | quote }}
    rules:
    {{- $alerts := list
      (dict "name" "QuarantinedKeys" "for" "5m" "severity" "warning" "expr" (printf "windlass_quarantined_keys{%s} > 0" $job)
        "summary" "Reconciles of a key panic; /debug/controllers/<name> lists the keys.")
      (dict "name" "UndecodableKeys" "for" "5m" "severity" "warning" "expr" (printf "windlass_undecodable_keys{%s} > 0" $job)
        "summary" "An object cannot be decoded, so its key is not reconciled.")
      (dict "name" "StuckWorker" "for" "5m" "severity" "warning"
        "expr" (printf "workqueue_longest_running_processor_seconds{%s} > 60" $job)
        "summary" "A reconcile runs for more than a minute: the worker is stuck, or the API server is slow.")
      (dict "name" "CacheCannotList" "for" "5m" "severity" "critical"
        "expr" (printf "rate(windlass_informer_list_errors_total{%s}[5m]) > 0" $job)
        "summary" "A cache cannot list: the API server is unreachable, or a permission is missing.") }}
    {{- if not .shards }}
    {{- $leader := dict "name" "NoLeader" "for" "2m" "severity" "critical"
      "expr" (printf "(sum(leader_election_master_status{%s}) or vector(0)) != 1" $job)
      "summary" "The number of leading replicas is not 1, so objects are not reconciled, or by two replicas." }}
    {{- $alerts = prepend $alerts $leader }}
    {{- end }}
    {{- range $alert := $alerts }}
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
    {{- with concat (default list .rules) $rule.extraRules }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
{{- end -}}
