//! Command lines of the control plane's programs, as pure functions of paths and options.

use std::path::Path;

use serde_json::{Value, json};

use crate::layout::Layout;
use crate::options::ControlPlaneOptions;

/// Service network, separate from pods and nodes.
const SERVICE_NETWORK: &str = "10.0.0.0/16";

/// Network of kwok's pods, for eight million pods.
const POD_NETWORK: &str = "10.128.0.1/9";

/// Identities of the control plane's programs, each with a kubeconfig.
pub(crate) mod identity {
    /// Unrestricted administrator.
    pub(crate) const ADMIN: &str = "admin";
    /// Upstream's controller manager.
    pub(crate) const CONTROLLER_MANAGER: &str = "kube-controller-manager";
    /// Scheduler.
    pub(crate) const SCHEDULER: &str = "kube-scheduler";
    /// kwok.
    pub(crate) const KWOK: &str = "kwok";

    /// Each identity with its user and its group. kwok acts for all kubelets, for which there is no role.
    pub(crate) const ALL: [(&str, &str, Option<&str>); 4] = [
        (ADMIN, "windlass-admin", Some("system:masters")),
        (CONTROLLER_MANAGER, "system:kube-controller-manager", None),
        (SCHEDULER, "system:kube-scheduler", None),
        (KWOK, "kwok", Some("system:masters")),
    ];
}

/// Returns the arguments of etcd on sockets, without fsync.
pub(crate) fn etcd(layout: &Layout) -> Vec<String> {
    vec![
        "--name=default".into(),
        argument("--data-dir", &layout.data().join("etcd")),
        format!("--listen-client-urls=unix://{}", layout.etcd_socket().display()),
        format!("--listen-peer-urls=unix://{}", layout.data().join("peer.sock").display()),
        // An advertised URL needs a host and a port. A single member has no peers that use it.
        "--advertise-client-urls=http://localhost:2379".into(),
        "--enable-grpc-gateway=false".into(),
        "--unsafe-no-fsync".into(),
        // Enough for a hundred thousand pods and their history.
        "--quota-backend-bytes=8589934592".into(),
        "--log-level=warn".into(),
    ]
}

/// Returns the arguments of the API server on `port` of the loopback interface.
pub(crate) fn api_server(layout: &Layout, port: u16, options: &ControlPlaneOptions) -> Vec<String> {
    let mode = if options.authorization_rbac { "RBAC" } else { "AlwaysAllow" };
    let mut arguments = vec![
        format!("--etcd-servers=unix://{}", layout.etcd_socket().display()),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        argument("--cert-dir", &layout.pki("")),
        argument("--tls-cert-file", &layout.pki("api-server.crt")),
        argument("--tls-private-key-file", &layout.pki("api-server.key")),
        argument("--client-ca-file", &layout.pki("ca.crt")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        argument("--service-account-key-file", &layout.pki("service-account.pub")),
        argument("--service-account-signing-key-file", &layout.pki("service-account.key")),
        format!("--service-cluster-ip-range={SERVICE_NETWORK}"),
        format!("--authorization-mode={mode}"),
        "--anonymous-auth=false".into(),
        "--allow-privileged=true".into(),
        // Endpoints of the API server must not be loopback addresses, and no program here uses them.
        "--endpoint-reconciler-type=none".into(),
    ];
    arguments.extend(options.extra_api_server_args.iter().cloned());
    arguments
}

/// Returns the arguments of upstream's controller manager with the given controllers and default settings, without
/// leader election.
pub(crate) fn controller_manager(layout: &Layout, controllers: &[&str], rbac: bool) -> Vec<String> {
    vec![
        argument("--kubeconfig", &layout.kubeconfig(identity::CONTROLLER_MANAGER)),
        format!("--controllers={}", controllers.join(",")),
        "--leader-elect=false".into(),
        // The admin server is off by default. Callers that read its metrics set a port.
        "--secure-port=0".into(),
        "--bind-address=127.0.0.1".into(),
        argument("--cert-dir", &layout.home()),
        argument("--root-ca-file", &layout.pki("ca.crt")),
        argument("--cluster-signing-cert-file", &layout.pki("ca.crt")),
        argument("--cluster-signing-key-file", &layout.pki("ca.key")),
        argument("--service-account-private-key-file", &layout.pki("service-account.key")),
        // Under RBAC the manager itself has few permissions; each controller uses its own role.
        format!("--use-service-account-credentials={rbac}"),
    ]
}

/// Returns the client rate limits of the supporting controllers.
pub(crate) fn limits(options: &ControlPlaneOptions) -> [String; 2] {
    [
        format!("--kube-api-qps={}", options.kube_api_qps),
        format!("--kube-api-burst={}", options.kube_api_burst),
    ]
}

/// Returns the arguments of the scheduler, whose settings are in the file `config`.
pub(crate) fn scheduler(config: &Path) -> Vec<String> {
    vec![argument("--config", config), "--secure-port=0".into()]
}

/// Returns the scheduler's settings.
pub(crate) fn scheduler_config(layout: &Layout, options: &ControlPlaneOptions) -> Value {
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": layout.kubeconfig(identity::SCHEDULER),
            "qps": options.kube_api_qps,
            "burst": options.kube_api_burst,
        },
        "leaderElection": { "leaderElect": false },
    })
}

/// Returns the arguments of kwok, which simulates the kubelet of every node.
pub(crate) fn kwok(layout: &Layout, stages: &Path) -> Vec<String> {
    vec![
        argument("--kubeconfig", &layout.kubeconfig(identity::KWOK)),
        argument("--config", stages),
        "--manage-all-nodes=true".into(),
        format!("--cidr={POD_NETWORK}"),
        "--node-ip=10.127.0.1".into(),
        // The kubelet API is off: it would listen on every interface.
        "--node-port=0".into(),
        "--node-lease-duration-seconds=40".into(),
    ]
}

fn argument(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}
