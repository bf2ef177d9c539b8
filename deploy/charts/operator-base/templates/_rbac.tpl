{{- /*
Roles from the output of `<program> manifests rbac`, with names of the release.

Takes a dict:
  context: the root context of the chart
  process: the name of the program
  manifests: the output, as text
  leaseName, leaseNamespace: the Lease, if the output contains the placeholders

Replaces placeholders in the output: `namespace-of-release`, `name-of-release`, `namespace-of-lease`, `name-of-lease`,
and `namespace-of-objects` by each namespace in `watchNamespaces` of the values. ServiceAccounts are omitted: the chart creates
that of the process, and the process creates those of controllers.
*/ -}}
{{- define "operator-base.rbac" -}}
{{- $context := .context -}}
{{- $arguments := . -}}
{{- if $context.Values.rbac.create }}
{{- range $document := splitList "---\n" .manifests }}
{{- if contains "namespace-of-objects" $document }}
{{- range $context.Values.watchNamespaces }}
{{- include "operator-base.role" (dict "document" (replace "namespace-of-objects" (quote .) $document) "arguments" $arguments) }}
{{- end }}
{{- else }}
{{- include "operator-base.role" (dict "document" $document "arguments" $arguments) }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "operator-base.role" -}}
{{- $context := .arguments.context -}}
{{- $process := .arguments.process -}}
{{- $fullname := include "operator-base.fullname" $context -}}
{{- $namespace := include "operator-base.namespace" $context -}}
{{- $text := .document
  | replace "namespace-of-release" (quote $namespace)
  | replace "namespace-of-lease" (default $namespace .arguments.leaseNamespace | quote)
  | replace "name-of-lease" (default $process .arguments.leaseName | quote)
  | replace "name-of-release" (quote $fullname) -}}
{{- $object := fromYaml $text -}}
{{- with $object.Error }}{{ fail . }}{{ end -}}
{{- $unused := list -}}
{{- /* A process that reads its certificate from files neither issues one nor writes the authority. */ -}}
{{- with (default dict $context.Values.webhook).secretName }}{{ $unused = append $unused (printf "%s-webhooks" $process) }}{{ end -}}
{{- /* The ClusterRole with the name of the process contains reviews only; a Role of this name contains reads of caches. */ -}}
{{- if and $object (not $context.Values.rbac.reviews) (hasPrefix "ClusterRole" $object.kind) }}{{ $unused = append $unused $process }}{{ end -}}
{{- if and $object (ne $object.kind "ServiceAccount") (not (has $object.metadata.name $unused)) }}
{{- $metadata := dict "name" (printf "%s%s" $fullname (trimPrefix $process $object.metadata.name))
  "labels" (include "operator-base.labels" $context | fromYaml) -}}
{{- with $object.metadata.namespace }}{{ $_ := set $metadata "namespace" . }}{{ end -}}
{{- with include "operator-base.annotations" (dict "context" $context) | fromYaml }}{{ $_ := set $metadata "annotations" . }}{{ end -}}
{{- $_ := set $object "metadata" $metadata -}}
{{- with $object.roleRef }}{{ $_ := set . "name" $metadata.name }}{{ end -}}
{{- range $object.subjects }}
{{- if eq .name $process }}{{ $_ := set . "name" (include "operator-base.serviceAccountName" $context) }}{{ end -}}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end -}}

{{- /*
CRDs from the output of `<program> manifests crd`, with ClusterRoles for users that are aggregated to `view`, `edit` and
`admin`. Takes a dict with `context` and `manifests`. Values: `crds.enabled`, `crds.keep`, `crds.aggregateRoles`.
*/ -}}
{{- define "operator-base.crds" -}}
{{- $context := .context -}}
{{- $crds := $context.Values.crds -}}
{{- if $crds.enabled }}
{{- $rules := list -}}
{{- $namespace := include "operator-base.namespace" $context | quote -}}
{{- range $document := splitList "---\n" (replace "namespace-of-release" $namespace .manifests) }}
{{- with fromYaml $document }}
{{- $annotations := dict -}}
{{- if dig "spec" "conversion" "webhook" "" . }}{{ $annotations = deepCopy $context.Values.webhook.annotations }}{{ end -}}
{{- if $crds.keep }}{{ $_ := set $annotations "helm.sh/resource-policy" "keep" }}{{ end -}}
{{- $_ := set . "metadata" (include "operator-base.metadata"
  (dict "context" $context "name" .metadata.name "cluster" true "annotations" $annotations) | fromYaml) -}}
{{- $rules = append $rules (dict "apiGroups" (list .spec.group) "resources" (list .spec.names.plural)) }}
---
{{ toYaml . }}
{{- end }}
{{- end }}
{{- if $crds.aggregateRoles }}
{{- range $role, $verbs := dict "view" (list "get" "list" "watch")
  "edit" (list "create" "update" "patch" "delete" "deletecollection") }}
{{- $labels := dict -}}
{{- range ternary (list "view" "edit" "admin") (list "edit" "admin") (eq $role "view") }}
{{- $_ := set $labels (printf "rbac.authorization.k8s.io/aggregate-to-%s" .) "true" -}}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- include "operator-base.metadata" (dict "context" $context "cluster" true "labels" $labels
    "name" (printf "%s-%s" (include "operator-base.fullname" $context) $role)) | nindent 2 }}
rules:
{{- range $rules }}
{{ toYaml (list (merge (dict "verbs" $verbs) .)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
