//! What kind of plane is wanted.

/// Upstream's controllers that run next to ours by default: none of them owns workloads.
///
/// Without the first no pod is admitted, without the second no namespace ever goes away, and without
/// the third nothing owned is removed with its owner.
pub const SUPPORTING_CONTROLLERS: [&str; 3] =
    ["serviceaccount-controller", "namespace-controller", "garbage-collector-controller"];

/// The settings of a [`Plane`](crate::Plane).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlaneOptions {
    /// Upstream controllers to run, by canonical name; none at all when empty. Default:
    /// [`SUPPORTING_CONTROLLERS`].
    pub upstream_controllers: Vec<String>,
    /// Whether the scheduler runs. Default: yes.
    pub scheduler: bool,
    /// How many nodes kwok plays. Default: 3, enough to see spreading. With 0 kwok is not started
    /// before [`Plane::add_nodes`](crate::Plane::add_nodes).
    pub nodes: usize,
    /// Requests per second granted to the supporting controllers and to the scheduler. Default:
    /// 1,000, so that they are never what a test waits for.
    pub kube_api_qps: u32,
    /// The burst on top of it. Default: 2,000.
    pub kube_api_burst: u32,
    /// Whether requests are authorised by RBAC, as in any real cluster. Default: yes. Without it
    /// whoever has a certificate may do anything.
    pub authorization_rbac: bool,
    /// Further arguments of kube-apiserver, as `--name=value`. They win over the harness's own.
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
    /// Replaces the upstream controllers that run.
    #[must_use]
    pub fn upstream_controllers<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.upstream_controllers = names.into_iter().map(Into::into).collect();
        self
    }

    /// Says whether the scheduler runs.
    #[must_use]
    pub fn scheduler(mut self, runs: bool) -> Self {
        self.scheduler = runs;
        self
    }

    /// Says how many nodes there are.
    #[must_use]
    pub fn nodes(mut self, count: usize) -> Self {
        self.nodes = count;
        self
    }

    /// Says whether RBAC decides.
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

    /// Whether upstream's own `name` is among the controllers that run.
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
    fn star_runs_them_all() {
        assert!(
            ControlPlaneOptions::default().upstream_controllers(["*"]).runs_upstream("replicaset-controller")
        );
    }
}
