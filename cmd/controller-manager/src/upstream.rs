//! The flags and controllers of kube-controller-manager v1.36 that windlass does not implement yet.
//!
//! A command line that is moved over gets "not yet" with the name, not a search for a typing error. Remove a name when
//! windlass implements it.
//! Guarantees: the lists are sorted and contain nothing that windlass implements (both tested).

/// Flags without their dashes.
const FLAGS: &str = "\
    allocate-node-cidrs allow-metric-labels allow-metric-labels-manifest allow-untagged-cloud \
    attach-detach-reconcile-sync-period authentication-kubeconfig authentication-skip-lookup \
    authentication-tolerate-lookup-failure authorization-kubeconfig cidr-allocator-type client-ca-file \
    cloud-config cloud-provider cluster-cidr cluster-name cluster-signing-cert-file cluster-signing-duration \
    cluster-signing-key-file cluster-signing-kube-apiserver-client-cert-file \
    cluster-signing-kube-apiserver-client-key-file cluster-signing-kubelet-client-cert-file \
    cluster-signing-kubelet-client-key-file cluster-signing-kubelet-serving-cert-file \
    cluster-signing-kubelet-serving-key-file cluster-signing-legacy-unknown-cert-file \
    cluster-signing-legacy-unknown-key-file concurrent-cron-job-syncs \
    concurrent-device-taint-eviction-syncs concurrent-ephemeralvolume-syncs \
    concurrent-gc-syncs concurrent-horizontal-pod-autoscaler-syncs concurrent-job-syncs \
    concurrent-namespace-syncs concurrent-resource-quota-syncs concurrent-resourceclaim-syncs \
    concurrent-service-endpoint-syncs concurrent-service-syncs concurrent-serviceaccount-token-syncs \
    concurrent-ttl-after-finished-syncs \
    concurrent-validating-admission-policy-status-syncs configure-cloud-routes contention-profiling \
    disable-attach-detach-reconcile-sync disable-force-detach-on-timeout disabled-metrics emulated-version \
    enable-dynamic-provisioning enable-garbage-collector enable-hostpath-provisioner enable-leader-migration \
    endpointslice-updates-batch-period external-cloud-volume-plugin flex-volume-plugin-dir \
    horizontal-pod-autoscaler-cpu-initialization-period horizontal-pod-autoscaler-downscale-stabilization \
    horizontal-pod-autoscaler-initial-readiness-delay horizontal-pod-autoscaler-sync-period \
    horizontal-pod-autoscaler-tolerance http2-max-streams-per-connection kube-api-content-type \
    large-cluster-size-threshold leader-migration-config legacy-service-account-token-clean-up-period \
    log-flush-frequency log-json-info-buffer-size log-json-split-stream log-text-info-buffer-size \
    log-text-split-stream max-endpoints-per-slice min-compatibility-version \
    mirroring-concurrent-service-endpoint-syncs mirroring-endpointslice-updates-batch-period \
    mirroring-max-endpoints-per-subset namespace-sync-period node-cidr-mask-size node-cidr-mask-size-ipv4 \
    node-cidr-mask-size-ipv6 node-eviction-rate node-monitor-grace-period node-monitor-period \
    node-startup-grace-period node-sync-period permit-address-sharing permit-port-sharing profiling \
    pv-recycler-increment-timeout-nfs pv-recycler-minimum-timeout-hostpath pv-recycler-minimum-timeout-nfs \
    pv-recycler-pod-template-filepath-hostpath pv-recycler-pod-template-filepath-nfs \
    pv-recycler-timeout-increment-hostpath pvclaimbinder-sync-period requestheader-allowed-names \
    requestheader-client-ca-file requestheader-extra-headers-prefix requestheader-group-headers \
    requestheader-uid-headers requestheader-username-headers resource-quota-sync-period \
    route-reconciliation-period secondary-node-eviction-rate service-account-private-key-file \
    service-cluster-ip-range show-hidden-metrics-for-version tls-cipher-suites tls-curve-preferences \
    tls-min-version tls-sni-cert-key unhealthy-zone-threshold vmodule";

/// Controllers by name and by the shorter alias.
const CONTROLLERS: &str = "\
    attachdetach bootstrap-signer-controller bootstrapsigner certificatesigningrequest-approving-controller \
    certificatesigningrequest-cleaner-controller certificatesigningrequest-signing-controller \
    cloud-node-lifecycle cloud-node-lifecycle-controller clusterrole-aggregation \
    clusterrole-aggregation-controller cronjob cronjob-controller csrapproving csrcleaner csrsigning \
    device-taint-eviction-controller disruption \
    disruption-controller endpointslice endpointslice-controller endpointslice-mirroring-controller \
    endpointslicemirroring ephemeral-volume ephemeral-volume-controller garbage-collector-controller \
    garbagecollector horizontal-pod-autoscaler-controller horizontalpodautoscaling job job-controller \
    kube-apiserver-serving-clustertrustbundle-publisher-controller legacy-service-account-token-cleaner \
    legacy-serviceaccount-token-cleaner-controller namespace namespace-controller node-ipam-controller \
    node-lifecycle-controller node-route-controller nodeipam nodelifecycle \
    persistentvolume-attach-detach-controller persistentvolume-binder persistentvolume-binder-controller \
    persistentvolume-expander persistentvolume-expander-controller persistentvolume-protection-controller \
    persistentvolumeclaim-protection-controller podcertificaterequest-cleaner-controller \
    podgroup-protection-controller pv-protection pvc-protection resource-claim-controller \
    resourceclaim-controller resourcepoolstatusrequest-controller resourcequota resourcequota-controller route \
    selinux-warning-controller service service-cidr-controller service-lb-controller serviceaccount-token \
    serviceaccount-token-controller storage-version-gc \
    storage-version-migrator-controller storageversion-garbage-collector-controller svm taint-eviction-controller \
    token-cleaner-controller tokencleaner ttl-after-finished ttl-after-finished-controller \
    validatingadmissionpolicy-status-controller volumeattributesclass-protection-controller";

/// Returns whether kube-controller-manager has this flag, given without dashes, and windlass does not.
pub(crate) fn has_flag(name: &str) -> bool {
    FLAGS.split(' ').any(|flag| flag == name)
}

/// Returns whether kube-controller-manager has a controller of this name and windlass does not.
pub(crate) fn has_controller(name: &str) -> bool {
    CONTROLLERS.split(' ').any(|controller| controller == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line;

    #[test]
    fn lists_are_sorted_and_unique() {
        for list in [FLAGS, CONTROLLERS] {
            assert!(list.split(' ').is_sorted_by(|a, b| a < b && !a.is_empty()));
        }
    }

    #[test]
    fn implemented_flags_are_not_listed() {
        for name in command_line::flag_names() {
            assert!(!has_flag(&name), "--{name} is implemented");
        }
    }

    #[test]
    fn controllers_are_listed_by_name_and_alias() {
        assert!(has_controller("cronjob-controller") && has_controller("cronjob"));
        assert!(
            !has_controller("daemonset") && !has_controller("replicaset") && !has_flag("node-monitor-perio")
        );
    }
}
