//! Settings of a control plane.

/// Upstream controllers that run by default. None of them owns workloads.
///
/// The first one admits pods, the second one completes the deletion of namespaces, and the third one deletes owned
/// objects with their owners.
pub const SUPPORTING_CONTROLLERS: [&str; 3] =
    ["serviceaccount-controller", "namespace-controller", "garbage-collector-controller"];

/// Settings of a [`ControlPlane`](crate::ControlPlane).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlaneOptions {
    /// Upstream controllers to run, by canonical name; an empty list disables all. Default: [`SUPPORTING_CONTROLLERS`].
    pub upstream_controllers: Vec<String>,
    /// Whether the scheduler runs. Default: true.
    pub scheduler: bool,
    /// Number of nodes that kwok simulates. Default: 3, enough to observe spreading. With 0, kwok starts with the first
    /// [`ControlPlane::add_nodes`](crate::ControlPlane::add_nodes).
    pub nodes: usize,
    /// Requests per second of the supporting controllers and of the scheduler. Default: 1,000, so that tests do not
    /// wait for this limit.
    pub kube_api_qps: u32,
    /// Burst of these clients. Default: 2,000.
    pub kube_api_burst: u32,
    /// Whether RBAC authorizes requests, as in real clusters. Default: true. Without RBAC every certificate grants all
    /// permissions.
    pub authorization_rbac: bool,
    /// Additional arguments of kube-apiserver, as `--name=value`. They override the harness's arguments.
    pub extra_api_server_args: Vec<String>,
}

impl Default for ControlPlaneOptions {
    fn default() -> Self {
        Self {
            upstream_controllers: SUPPORTING_CONTROLLERS.map(String::from).to_vec(),
            scheduler: true,
            nodes: 3,
            kube_api_qps: 1_000,
            kube_api_burst: 2_000,
            authorization_rbac: true,
            extra_api_server_args: Vec::new(),
        }
    }
}

impl ControlPlaneOptions {
    /// Replaces the upstream controllers to run.
    #[must_use]
    pub fn upstream_controllers<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.upstream_controllers = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets whether the scheduler runs.
    #[must_use]
    pub fn scheduler(mut self, runs: bool) -> Self {
        self.scheduler = runs;
        self
    }

    /// Sets the number of nodes.
    #[must_use]
    pub fn nodes(mut self, count: usize) -> Self {
        self.nodes = count;
        self
    }

    /// Sets whether RBAC authorizes requests.
    #[must_use]
    pub fn authorization_rbac(mut self, decides: bool) -> Self {
        self.authorization_rbac = decides;
        self
    }

    /// Adds an argument of kube-apiserver, as `--name=value`.
    #[must_use]
    pub fn api_server_arg(mut self, argument: impl Into<String>) -> Self {
        self.extra_api_server_args.push(argument.into());
        self
    }

    /// Returns whether the upstream controller `name` runs.
    pub(crate) fn runs_upstream(&self, name: &str) -> bool {
        self.upstream_controllers.iter().any(|controller| controller == name || controller == "*")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_no_upstream_controller_owns_workloads() {
        let options = ControlPlaneOptions::default();
        assert!(options.runs_upstream("serviceaccount-controller"));
        assert!(!options.runs_upstream("replicaset-controller"));
        assert!(!options.runs_upstream("endpoints-controller"));
    }

    #[test]
    fn star_runs_all_upstream_controllers() {
        assert!(
            ControlPlaneOptions::default().upstream_controllers(["*"]).runs_upstream("replicaset-controller")
        );
    }
}
