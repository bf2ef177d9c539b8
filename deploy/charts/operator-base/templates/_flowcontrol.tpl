{{- /*
FlowSchemas: without these objects a busy workload could delay the renewal of the Lease. Takes a dict with `context` and
`leaseNamespace`, the namespace of the Lease.
*/ -}}
{{- define "operator-base.flowSchemas" -}}
{{- if and .context.Values.flowControl.create (not .context.Values.watchNamespaces) -}}
{{- $name := include "operator-base.fullname" .context -}}
{{- $account := dict "kind" "ServiceAccount" "serviceAccount" (dict
  "name" (include "operator-base.serviceAccountName" .context) "namespace" (include "operator-base.namespace" .context)) -}}
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata:
  {{- include "operator-base.metadata" (dict "context" .context "name" (printf "%s-leases" $name) "cluster" true) | nindent 2 }}
spec:
  priorityLevelConfiguration:
    name: leader-election
  # Close to `system-leader-election`, which has 100.
  matchingPrecedence: 110
  distinguisherMethod:
    type: ByUser
  rules:
  - subjects:
    {{- toYaml (list $account) | nindent 4 }}
    resourceRules:
    - verbs: ["*"]
      apiGroups: [coordination.k8s.io]
      resources: [leases, leasecandidates]
      namespaces: [{{ .leaseNamespace | quote }}]
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata:
  {{- include "operator-base.metadata" (dict "context" .context "cluster" true) | nindent 2 }}
spec:
  priorityLevelConfiguration:
    name: workload-high
  # Close to `kube-controller-manager`, which has 800.
  matchingPrecedence: 810
  distinguisherMethod:
    type: ByNamespace
  rules:
  - subjects:
    {{- toYaml (list $account) | nindent 4 }}
    resourceRules:
    - verbs: ["*"]
      apiGroups: ["*"]
      resources: ["*"]
      namespaces: ["*"]
      clusterScope: true
    nonResourceRules:
    - verbs: ["*"]
      nonResourceURLs: ["*"]
{{- end -}}
{{- end -}}
