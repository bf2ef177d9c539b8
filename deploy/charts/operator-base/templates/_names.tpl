{{- /*
Names and labels. Each template takes the root context of the chart.
*/ -}}

{{- define "operator-base.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /* Truncated, so that suffixes of the chart fit. */ -}}
{{- define "operator-base.fullname" -}}
{{- $name := include "operator-base.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "operator-base.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "operator-base.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "operator-base.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.create=false: the Pods would use the ServiceAccount `default`; set serviceAccount.name" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "operator-base.selectorLabels" -}}
app.kubernetes.io/name: {{ include "operator-base.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "operator-base.labels" -}}
{{- $labels := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/version" (.Chart.AppVersion | toString | replace "+" "_" | trunc 63)
  "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $own := mergeOverwrite $labels (include "operator-base.selectorLabels" . | fromYaml) -}}
{{- toYaml (mergeOverwrite (deepCopy (default dict .Values.commonLabels)) $own) -}}
{{- end -}}

{{- /*
Takes `context`, and optionally `name`, `namespace`, `cluster: true` for objects without namespace, `labels` that the
labels of the chart override, and `annotations` that override `commonAnnotations`.
*/ -}}
{{- define "operator-base.metadata" -}}
name: {{ default (include "operator-base.fullname" .context) .name | quote }}
{{- if not .cluster }}
namespace: {{ default (include "operator-base.namespace" .context) .namespace | quote }}
{{- end }}
labels:
  {{- toYaml (mergeOverwrite (deepCopy (default dict .labels)) (include "operator-base.labels" .context | fromYaml)) | nindent 2 }}
{{- with include "operator-base.annotations" . | fromYaml }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* `commonAnnotations`, and the optional `annotations`. Takes a dict with `context`. */ -}}
{{- define "operator-base.annotations" -}}
{{- toYaml (mergeOverwrite (deepCopy (default dict .context.Values.commonAnnotations)) (default dict .annotations)) -}}
{{- end -}}

{{- define "operator-base.image" -}}
{{- $image := .Values.image -}}
{{- $repository := $image.repository -}}
{{- with $image.registry }}{{ $repository = printf "%s/%s" . $repository }}{{ end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}
