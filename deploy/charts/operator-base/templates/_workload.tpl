{{- /*
ServiceAccount, workload and PodDisruptionBudget. Helm reads numbers as floats, so templates print integers by `int64`
or `toYaml`.
*/ -}}

{{- define "operator-base.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "operator-base.metadata" (dict "context" . "name" (include "operator-base.serviceAccountName" .)
    "annotations" .Values.serviceAccount.annotations) | nindent 2 }}
# Pods use a projected token instead.
automountServiceAccountToken: false
{{- end -}}
{{- end -}}

{{- /*
Takes a dict:
  context: the root context of the chart
  args: arguments of the container
  port: HTTPS port of health and metrics
  ports: further ports of the container
  annotations, volumes, volumeMounts: of the Pods, in addition to those in the values
*/ -}}
{{- define "operator-base.workload" -}}
{{- $values := .context.Values -}}
{{- $deployment := eq $values.kind "Deployment" -}}
apiVersion: apps/v1
kind: {{ $values.kind }}
metadata:
  {{- include "operator-base.metadata" (dict "context" .context "annotations" $values.workloadAnnotations) | nindent 2 }}
spec:
  {{- if $deployment }}
  replicas: {{ int64 $values.replicas }}
  {{- end }}
  revisionHistoryLimit: {{ int64 $values.revisionHistoryLimit }}
  selector:
    matchLabels:
      {{- include "operator-base.selectorLabels" .context | nindent 6 }}
  {{- with $values.updateStrategy }}
  {{ ternary "strategy" "updateStrategy" $deployment }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  template:
    metadata:
      labels:
        {{- $labels := include "operator-base.labels" .context | fromYaml }}
        {{- toYaml (mergeOverwrite (deepCopy $values.podLabels) (omit $labels "helm.sh/chart")) | nindent 8 }}
      annotations:
        kubectl.kubernetes.io/default-container: {{ include "operator-base.name" .context | quote }}
        {{- with mergeOverwrite (deepCopy $values.podAnnotations) (default dict .annotations) }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      {{- include "operator-base.podSpec" . | nindent 6 }}
{{- end -}}

{{- define "operator-base.podSpec" -}}
{{- $values := .context.Values -}}
{{- /* Server-side apply rejects a repeated name with an error that does not name the value. */ -}}
{{- $names := list -}}
{{- range $values.extraEnv }}
{{- if has .name $names }}{{ fail (printf "extraEnv: %s is set twice; remove one entry" .name) }}{{ end -}}
{{- $names = append $names .name -}}
{{- end -}}
serviceAccountName: {{ include "operator-base.serviceAccountName" .context | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- if $values.hostNetwork }}
hostNetwork: true
{{- if not $values.dnsPolicy }}
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- end }}
{{- with pick $values "dnsConfig" "dnsPolicy" "hostAliases" "hostUsers" "runtimeClassName" "schedulerName" }}
{{ toYaml . }}
{{- end }}
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "operator-base.podSecurityContext" .context | nindent 2 }}
terminationGracePeriodSeconds: {{ int64 $values.terminationGracePeriodSeconds }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $values.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
- name: {{ include "operator-base.name" .context | quote }}
  image: {{ include "operator-base.image" .context | quote }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  args:
    {{- toYaml (concat .args $values.extraArgs) | nindent 4 }}
  {{- with $values.extraEnv }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.extraEnvFrom }}
  envFrom:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
  - name: https
    containerPort: {{ int64 .port }}
    protocol: TCP
  {{- with .ports }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- range $probe, $path := dict "startup" "/livez" "liveness" "/livez" "readiness" "/readyz" }}
  {{ $probe }}Probe:
    httpGet:
      path: {{ $path }}
      port: https
      scheme: HTTPS
    {{- toYaml (index $values.probes $probe) | nindent 4 }}
  {{- end }}
  resources:
    {{- toYaml $values.resources | nindent 4 }}
  securityContext:
    {{- toYaml $values.securityContext | nindent 4 }}
  volumeMounts:
  - name: token
    mountPath: /var/run/secrets/kubernetes.io/serviceaccount
    readOnly: true
  {{- with concat (default list .volumeMounts) $values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.extraContainers }}
{{ toYaml . }}
{{- end }}
volumes:
- name: token
  projected:
    defaultMode: 0440
    sources:
    - serviceAccountToken:
        path: token
        expirationSeconds: {{ int64 $values.token.expirationSeconds }}
    - configMap:
        name: kube-root-ca.crt
        items:
        - key: ca.crt
          path: ca.crt
    - downwardAPI:
        items:
        - path: namespace
          fieldRef:
            apiVersion: v1
            fieldPath: metadata.namespace
{{- with concat (default list .volumes) $values.extraVolumes }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- include "operator-base.placement" .context }}
{{- end -}}

{{- /* OpenShift selects users and groups itself, and rejects Pods with those of the default values. */ -}}
{{- define "operator-base.podSecurityContext" -}}
{{- $context := .Values.podSecurityContext -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" -}}
{{- range $field := list "fsGroup" "runAsGroup" "runAsUser" -}}
{{- if eq (toString (get $context $field)) "65532" }}{{ $context = omit $context $field }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{- /* A DaemonSet has one Pod on each node, so only a Deployment spreads its Pods. */ -}}
{{- define "operator-base.placement" -}}
{{- $selector := dict "matchLabels" (include "operator-base.selectorLabels" . | fromYaml) -}}
{{- $deployment := eq .Values.kind "Deployment" -}}
{{- if .Values.affinity }}
affinity:
  {{- toYaml .Values.affinity | nindent 2 }}
{{- else if and $deployment (ne .Values.antiAffinity "none") }}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" $selector }}
affinity:
  podAntiAffinity:
    {{- if eq .Values.antiAffinity "required" }}
    requiredDuringSchedulingIgnoredDuringExecution:
    {{- toYaml (list $term) | nindent 4 }}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
    {{- toYaml (list (dict "weight" 100 "podAffinityTerm" $term)) | nindent 4 }}
    {{- end }}
{{- end }}
{{- if and $deployment .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range .Values.topologySpreadConstraints }}
  {{- toYaml (list (merge (deepCopy .) (dict "labelSelector" $selector))) | nindent 0 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* The eviction API supports Pods of a DaemonSet only with an absolute number, and drains skip them. */ -}}
{{- define "operator-base.podDisruptionBudget" -}}
{{- $budget := .Values.podDisruptionBudget -}}
{{- if and $budget.enabled (eq .Values.kind "Deployment") (gt (int .Values.replicas) 1) -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "operator-base.metadata" (dict "context" .) | nindent 2 }}
spec:
  {{- if kindIs "invalid" $budget.minAvailable }}
  maxUnavailable: {{ toYaml $budget.maxUnavailable }}
  {{- else }}
  minAvailable: {{ toYaml $budget.minAvailable }}
  {{- end }}
  # A Pod that is not ready protects no other Pod.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "operator-base.selectorLabels" . | nindent 6 }}
{{- end -}}
{{- end -}}

{{- define "operator-base.extraObjects" -}}
{{- $context := . -}}
{{- range .Values.extraObjects }}
---
{{ tpl (ternary . (toYaml .) (kindIs "string" .)) $context }}
{{- end }}
{{- end -}}
