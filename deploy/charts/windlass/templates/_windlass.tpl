{{- /* Rejects values that contradict each other; the schema checks single values. */ -}}
{{- define "windlass.validate" -}}
{{- $enabled := include "windlass.controllers" . | fromYamlArray -}}
{{- if not $enabled -}}
{{- fail "controllers: all controllers are disabled; enable at least one" -}}
{{- end -}}
{{- if and (eq .Values.kind "Deployment") (or (has "deployment-controller" $enabled) (has "replicaset-controller" $enabled)) (not .Values.kubeconfig.secretName) -}}
{{- fail "kind=Deployment: a Deployment needs the controllers that Windlass replaces, so its Pods would never be created; use kind=DaemonSet, disable controllers.deployment-controller and controllers.replicaset-controller, or name another cluster in kubeconfig.secretName" -}}
{{- end -}}
{{- if and (eq .Values.kind "DaemonSet") (has "daemonset-controller" $enabled) (not .Values.kubeconfig.secretName) -}}
{{- fail "kind=DaemonSet: a DaemonSet needs the DaemonSet controller that Windlass replaces, so its Pods would never be created; disable controllers.daemonset-controller, use kind=Deployment, or name another cluster in kubeconfig.secretName" -}}
{{- end -}}
{{- if and (has "root-ca-certificate-publisher-controller" $enabled) (not .Values.rootCA.configMapName) (not .Values.kubeconfig.secretName) -}}
{{- fail "rootCA.configMapName: root-ca-certificate-publisher-controller needs the CA of the API server; name a ConfigMap that contains it, or disable the controller" -}}
{{- end -}}
{{- if eq .Values.rootCA.configMapName "kube-root-ca.crt" -}}
{{- fail "rootCA.configMapName=kube-root-ca.crt: the controller itself writes this ConfigMap; name another one" -}}
{{- end -}}
{{- if and .Values.watchNamespaces (eq .Values.leaderElection.mode "shards") -}}
{{- fail "leaderElection.mode=shards: shards divide all namespaces, and `watchNamespaces` selects some; leave one of them out" -}}
{{- end -}}
{{- if and (eq .Values.leaderElection.mode "shards") (has (include "windlass.leaseNamespace" .) (list "kube-system" "kube-node-lease")) -}}
{{- fail "leaderElection.leaseNamespace: with mode=shards the process can change each Lease of this namespace, and kube-system and kube-node-lease contain those of other components; name another namespace, the same for all releases that reconcile the same objects" -}}
{{- end -}}
{{- include "windlass.validateShutdown" . -}}
{{- include "windlass.validateArguments" . -}}
{{- if and .Values.kubeControllerManager.check (not .Values.kubeconfig.secretName) -}}
{{- include "windlass.validateUpstream" (dict "context" . "enabled" $enabled) -}}
{{- end -}}
{{- include "windlass.validateLease" . -}}
{{- if hasKey (default dict .Values.config.featureGates) "CoordinatedLeaderElection" -}}
{{- fail "config.featureGates: CoordinatedLeaderElection belongs to leaderElection.mode, which the roles follow; write mode=coordinated to switch the gate on, and remove it from config" -}}
{{- end -}}
{{- range .Files.Get "files/controllers.yaml" | fromYaml -}}
{{- if and $.Values.useServiceAccountCredentials $.Values.serviceAccount.create (eq .serviceAccount $.Values.serviceAccount.name) -}}
{{- fail (printf "serviceAccount.name=%s: with useServiceAccountCredentials this is the ServiceAccount of a controller; choose another name" .serviceAccount) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A flag would override the configuration file, but not the roles and the checks of this chart. */ -}}
{{- define "windlass.validateArguments" -}}
{{- include "operator-base.validateArguments" (dict "context" . "values" (dict
  "config" "config" "controllers" "controllers" "watch-namespaces" "watchNamespaces" "namespaces" "watchNamespaces" "shards" "leaderElection"
  "leader-elect" "leaderElection" "kubeconfig" "kubeconfig" "master" "kubeconfig" "root-ca-file" "rootCA"
  "use-service-account-credentials" "useServiceAccountCredentials" "secure-port" "port" "bind-address" "bindAddress"
  "tls-cert-file" "tls" "tls-private-key-file" "tls" "controller-shutdown-timeout" "config.generic.controllerShutdownTimeout" "feature-gates" "config.featureGates")) -}}
{{- end -}}

{{- /*
Fails while a kube-controller-manager in a Pod of kube-system runs one of the controllers. Without a connection to a
cluster, `lookup` finds nothing. `windlass migrate check` reads more forms of the command. Takes a dict with `context`
and `enabled`, the names of the enabled controllers.
*/ -}}
{{- define "windlass.validateUpstream" -}}
{{- $context := .context -}}
{{- $enabled := .enabled -}}
{{- range $pod := (lookup "v1" "Pod" "kube-system" "").items -}}
{{- $labels := dig "metadata" "labels" dict $pod -}}
{{- $isUpstream := eq "kube-controller-manager" (get $labels "component" | default (get $labels "k8s-app")) -}}
{{- if and $isUpstream (not (has (dig "status" "phase" "" $pod) (list "Succeeded" "Failed"))) -}}
{{- range $container := $pod.spec.containers -}}
{{- $line := concat (list .name) (default list .command) (default list .args) | join " " -}}
{{- if contains "kube-controller-manager" $line -}}
{{- $running := include "windlass.running" (dict "context" $context "line" $line "enabled" $enabled) | fromYamlArray -}}
{{- if $running -}}
{{- fail (printf "kube-controller-manager in Pod kube-system/%s runs %s, so two processes would reconcile the same objects; append %s to its --controllers and remove entries that enable them (`windlass migrate check` prints the whole value), or set kubeControllerManager.check=false if its flags are set elsewhere" $pod.metadata.name (join ", " $running) (printf ",-%s" (join ",-" $running))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /*
The names of the enabled controllers that a command line of kube-controller-manager runs, as a list. Takes a dict with
`context`, `line`, and `enabled`, the names of the enabled controllers.
*/ -}}
{{- define "windlass.running" -}}
{{- $controllers := .context.Files.Get "files/controllers.yaml" | fromYaml -}}
{{- $entries := list -}}
{{- range regexFindAll "--controllers[= ]\\S+" .line -1 -}}
{{- $entries = concat $entries (regexReplaceAll "^--controllers[= ]|[\"';)]" . "" | splitList ",") -}}
{{- end -}}
{{- $entries = $entries | default (list "*") -}}
{{- /* An entry that is a variable can enable all. */ -}}
{{- $isAll := has "*" $entries -}}
{{- range $entries }}{{ if not (regexMatch "^(\\*|-?[a-z0-9.-]+)$" .) }}{{ $isAll = true }}{{ end }}{{ end -}}
{{- range $name := .enabled -}}
{{- $runs := $isAll -}}
{{- $isDecided := false -}}
{{- range $entry := $entries -}}
{{- if and (not $isDecided) (has (trimPrefix "-" $entry) (get $controllers $name).names) -}}
{{- $runs = not (hasPrefix "-" $entry) -}}
{{- $isDecided = true -}}
{{- end -}}
{{- end }}
{{- if $runs }}
- {{ $name }}
{{- end }}
{{- end -}}
{{- end -}}

{{- /* Replicas with different Leases would act at the same time while the Pods are replaced. */ -}}
{{- define "windlass.validateLease" -}}
{{- $lease := include "windlass.lease" . -}}
{{- range $namespace := list .Release.Namespace (include "operator-base.namespace" .) | uniq -}}
{{- range $pod := (lookup "v1" "Pod" $namespace "").items -}}
{{- $labels := dig "metadata" "labels" dict $pod -}}
{{- $old := dig "metadata" "annotations" "windlass.dev/lease" $lease $pod -}}
{{- $isOwn := eq $.Release.Name (get $labels "app.kubernetes.io/instance") -}}
{{- if and $isOwn (ne $old $lease) (not (has (dig "status" "phase" "" $pod) (list "Succeeded" "Failed"))) -}}
{{- $owner := dig "metadata" "ownerReferences" (list dict) $pod | first -}}
{{- $workload := printf "%s %s" (get $owner "kind" | lower) (get $owner "name") -}}
{{- if eq "ReplicaSet" (get $owner "kind") -}}
{{- $workload = printf "deployment %s" (trimSuffix (printf "-%s" (get $labels "pod-template-hash")) (get $owner "name")) -}}
{{- end -}}
{{- fail (printf "leaderElection: the Pods of this release elect by %q, and the new Pods would by %q, so two leaders would act while the Pods are replaced; delete the workload first: kubectl -n %s delete %s --cascade=foreground" $old $lease $namespace $workload) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The Lease of replicas of which one acts at a time. */ -}}
{{- define "windlass.lease" -}}
{{- printf "%s %s/%s" .Values.leaderElection.mode (include "windlass.leaseNamespace" .) (include "windlass.leaseName" .) -}}
{{- end -}}

{{- /* The kubelet kills a process that exceeds the grace period; it then releases no Lease. */ -}}
{{- define "windlass.validateShutdown" -}}
{{- $grace := int64 .Values.terminationGracePeriodSeconds -}}
{{- $timeout := dig "generic" "controllerShutdownTimeout" "10s" .Values.config -}}
{{- $start := toDate "2006-01-02" "2000-01-01" -}}
{{- $seconds := sub (mustDateModify $timeout $start | unixEpoch | int64) ($start | unixEpoch | int64) -}}
{{- if regexMatch "^(0+(\\.0+)?(ms|s|m|h))+$" $timeout -}}
{{- fail (printf "config.generic.controllerShutdownTimeout=%s: running reconciles would be killed after %d seconds (terminationGracePeriodSeconds), because 0 waits indefinitely; write a shorter time" $timeout $grace) -}}
{{- end -}}
{{- if ge $seconds $grace -}}
{{- fail (printf "terminationGracePeriodSeconds=%d: running reconciles have %s to complete (config.generic.controllerShutdownTimeout), so the process would be killed first; write a longer grace period, or a shorter timeout" $grace $timeout) -}}
{{- end -}}
{{- end -}}

{{- /* The names of enabled controllers as a list. Those that read nodes or namespaces need the whole cluster. */ -}}
{{- define "windlass.controllers" -}}
{{- $known := .Files.Get "files/controllers.yaml" | fromYaml -}}
{{- range $name, $controller := .Values.controllers }}
{{- if and $controller.enabled (or (not $.Values.watchNamespaces) (get $known $name).inNamespaces) }}
- {{ $name }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Processes that reconcile the same objects must compete for one Lease, even in several releases. */ -}}
{{- define "windlass.leaseName" -}}
{{- default (ternary (include "operator-base.fullname" .) "windlass" (gt (len .Values.watchNamespaces) 0)) .Values.leaderElection.leaseName -}}
{{- end -}}

{{- define "windlass.leaseNamespace" -}}
{{- default (ternary (include "operator-base.namespace" .) "kube-system" (gt (len .Values.watchNamespaces) 0)) .Values.leaderElection.leaseNamespace -}}
{{- end -}}

{{- /* The file of --config. */ -}}
{{- define "windlass.config" -}}
{{- $election := .Values.leaderElection -}}
{{- $config := dict
  "apiVersion" "config.windlass.dev/v1alpha1"
  "kind" "ControllerManagerConfiguration"
  "generic" (dict
    "clientConnection" (dict "qps" .Values.client.qps "burst" .Values.client.burst "fieldManager" .Values.client.fieldManager)
    "controllers" (include "windlass.controllers" . | fromYamlArray)
    "leaderElection" (dict
      "leaderElect" true
      "resourceName" (include "windlass.leaseName" .)
      "resourceNamespace" (include "windlass.leaseNamespace" .)
      "leaseDuration" $election.leaseDuration
      "renewDeadline" $election.renewDeadline
      "retryPeriod" $election.retryPeriod
      "coordinated" (eq $election.mode "coordinated")
      "shards" (ternary $election.shards 0 (eq $election.mode "shards"))))
  "kubeCloudShared" (dict "useServiceAccountCredentials" .Values.useServiceAccountCredentials)
  "deploymentController" (dict "concurrentDeploymentSyncs" (index .Values.controllers "deployment-controller").concurrency)
  "daemonSetController" (dict "concurrentDaemonSetSyncs" (index .Values.controllers "daemonset-controller").concurrency)
  "statefulSetController" (dict "concurrentStatefulSetSyncs" (index .Values.controllers "statefulset-controller").concurrency)
  "replicaSetController" (dict "concurrentRSSyncs" (index .Values.controllers "replicaset-controller").concurrency)
  "replicationController" (dict "concurrentRCSyncs" (index .Values.controllers "replicationcontroller-controller").concurrency)
  "endpointController" (dict "concurrentEndpointSyncs" (index .Values.controllers "endpoints-controller").concurrency)
  "serving" (dict "bindAddress" .Values.bindAddress "securePort" .Values.port)
  "featureGates" (dict "CoordinatedLeaderElection" (eq $election.mode "coordinated"))
  "logging" (dict "verbosity" .Values.logging.level "format" .Values.logging.format) -}}
{{- with .Values.watchNamespaces }}{{ $_ := set $config.generic "watchNamespaces" . }}{{ end -}}
{{- if .Values.kubeconfig.secretName -}}
{{- $_ := set $config.generic.clientConnection "kubeconfig" (printf "/etc/windlass/kubeconfig/%s" .Values.kubeconfig.key) -}}
{{- end -}}
{{- if .Values.rootCA.configMapName -}}
{{- $_ := set $config "saController" (dict "rootCAFile" (printf "/etc/windlass/root-ca/%s" .Values.rootCA.key)) -}}
{{- end -}}
{{- if .Values.tls.secretName -}}
{{- $_ := set $config.serving "tlsCertFile" "/etc/windlass/tls/tls.crt" -}}
{{- $_ := set $config.serving "tlsPrivateKeyFile" "/etc/windlass/tls/tls.key" -}}
{{- end -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.config) $config) -}}
{{- end -}}

{{- /*
Alerts that only this chart has. kube-controller-manager creates the queue of a controller when it leads and starts the
controller, so the series of the queue exists exactly while the controller runs. A kube-controller-manager in the cluster of
Prometheus does not act on another cluster.
*/ -}}
{{- define "windlass.alerts" -}}
{{- $job := .Values.metrics.prometheusRule.kubeControllerManagerJob -}}
{{- if and $job (not .Values.kubeconfig.secretName) }}
- name: TwoManagers
  for: 10m
  severity: critical
  expr: {{ printf `count by (name) (workqueue_depth{job="%s"}) and on (name) workqueue_depth{%s}` $job (include "operator-base.job" .) | quote }}
  summary: kube-controller-manager runs a controller that Windlass runs, so both act on its objects.
{{- end }}
{{- end -}}
