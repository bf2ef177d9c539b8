{{- /*
Service and NetworkPolicy. Both take a dict with `context` and `port`, the HTTPS port of the container. The NetworkPolicy
opens further `ports` to all clients: API servers call webhooks from addresses that a chart does not know.
*/ -}}

{{- define "operator-base.service" -}}
{{- $service := .context.Values.metrics.service -}}
{{- if $service.enabled -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "operator-base.metadata" (dict "context" .context "annotations" $service.annotations) | nindent 2 }}
spec:
  type: ClusterIP
  selector:
    {{- include "operator-base.selectorLabels" .context | nindent 4 }}
  ports:
  - name: https
    port: {{ int64 $service.port }}
    targetPort: https
    protocol: TCP
{{- end -}}
{{- end -}}

{{- define "operator-base.networkPolicy" -}}
{{- $policy := .context.Values.networkPolicy -}}
{{- if $policy.enabled -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "operator-base.metadata" (dict "context" .context) | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "operator-base.selectorLabels" .context | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
  - ports:
    - port: {{ int64 .port }}
      protocol: TCP
    {{- with $policy.metricsFrom }}
    from:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  {{- with .ports }}
  - ports:
    {{- range . }}
    - port: {{ int64 .containerPort }}
      protocol: TCP
    {{- end }}
  {{- end }}
  {{- with $policy.extraIngress }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  egress:
  - ports:
    {{- range $policy.apiServerPorts }}
    - port: {{ int64 . }}
      protocol: TCP
    {{- end }}
  {{- with $policy.extraEgress }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
{{- end -}}
