//! The result of a check, and its text. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use windlass::controller::Descriptor;
use windlass::manager::Manifests;

use super::flags::Flags;
use super::normalized;

/// Controllers, settings and rights of windlass.
#[derive(Debug)]
pub(super) struct Expected {
    /// All controllers of windlass.
    pub(super) known: Vec<Descriptor>,
    /// The controllers that it runs.
    pub(super) controllers: Vec<&'static str>,
    /// Namespace and name of its Lease, if it elects a leader.
    pub(super) lease: Option<(String, String)>,
    /// The roles that it needs.
    pub(super) manifests: Manifests,
    /// The name of its ServiceAccount in the manifests.
    pub(super) account: String,
    /// The user that it will have.
    pub(super) user: String,
    /// Whether the user of the check states that no kube-controller-manager runs outside of Pods.
    pub(super) has_no_hidden_upstream: bool,
    /// Its values of settings that kube-controller-manager has too, by flag.
    pub(super) settings: BTreeMap<String, String>,
}

/// A kube-controller-manager in a Pod of kube-system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UpstreamPod {
    pub(super) name: String,
    pub(super) node: Option<String>,
    /// `None` if the Pod does not show the command line.
    pub(super) flags: Option<Flags>,
}

impl UpstreamPod {
    /// Returns whether a holder of the Lease can be this process: its identity starts with the hostname, which is the
    /// name of the node or of the Pod, with or without the domain.
    fn can_be(&self, holder: &Holder) -> bool {
        let host = holder.identity.split('_').next().unwrap_or_default();
        let short = |name: &str| name.split('.').next().map(str::to_owned);
        let names = [Some(self.name.as_str()), self.node.as_deref()];
        names.into_iter().flatten().any(|name| name == host || short(name) == short(host))
    }
}

/// The holder of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) identity: String,
    /// Seconds since the last renewal.
    pub(super) age: i64,
}

/// A right that an account lacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MissingRight {
    /// `namespace:name` of a ServiceAccount; `None` for the account of the process.
    pub(super) account: Option<String>,
    /// Such as `deployments.apps` or `pods/status`.
    pub(super) resource: String,
    /// The only object to which the right applies.
    pub(super) name: Option<String>,
    /// `None` for the whole cluster.
    pub(super) namespace: Option<String>,
    pub(super) verb: String,
}

/// The state of a cluster, next to what windlass expects.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) version: String,
    pub(super) upstream: Vec<UpstreamPod>,
    pub(super) upstream_lease: Option<Holder>,
    pub(super) own_lease: Option<Holder>,
    pub(super) missing: Vec<MissingRight>,
    pub(super) expected: Expected,
}

/// Whether kube-controller-manager runs a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// No visible kube-controller-manager runs it.
    Free,
    /// These Pods run it.
    RunsIn(Vec<String>),
    /// A kube-controller-manager runs that is in no visible Pod.
    Unknown,
}

impl Check {
    /// Returns the number of steps before windlass can start.
    pub(super) fn remaining_steps(&self) -> usize {
        let is_running = !self.pods_to_change().is_empty();
        let is_unreadable = !self.unreadable_pods().is_empty();
        [self.has_hidden_upstream(), is_unreadable, is_running, !self.missing.is_empty()]
            .into_iter()
            .filter(|it| *it)
            .count()
    }

    /// Returns whether a kube-controller-manager can run that no Pod shows: no Pod is visible, or none of them can be the
    /// leader.
    fn has_hidden_upstream(&self) -> bool {
        !self.expected.has_no_hidden_upstream && (self.upstream.is_empty() || self.hidden_leader().is_some())
    }

    /// Returns the leader if it is in no visible Pod.
    fn hidden_leader(&self) -> Option<&Holder> {
        let leader = self.upstream_lease.as_ref()?;
        (!self.upstream.iter().any(|pod| pod.can_be(leader))).then_some(leader)
    }

    /// Returns the Pods whose controllers are unknown, with the reason.
    fn unreadable_pods(&self) -> Vec<(&UpstreamPod, String)> {
        let reason = |pod: &UpstreamPod| {
            let Some(flags) = &pod.flags else {
                return Some("its command line is not visible; read the flags of the process".to_owned());
            };
            let entries = flags.unknown_controllers(&self.expected.known);
            (!entries.is_empty()).then(|| {
                format!("its --controllers has entries that name no controller: {}", entries.join(", "))
            })
        };
        self.upstream.iter().filter_map(|pod| Some((pod, reason(pod)?))).collect()
    }

    /// Returns the controllers of windlass that the Pod runs; all of them if its flags are not visible.
    fn running(&self, pod: &UpstreamPod) -> Vec<&'static str> {
        let Expected { known, controllers, .. } = &self.expected;
        pod.flags.as_ref().map_or_else(|| controllers.clone(), |flags| flags.enabled(known, controllers))
    }

    /// Returns the Pods that run a controller of windlass, with their flags.
    fn pods_to_change(&self) -> Vec<(&UpstreamPod, &Flags)> {
        let running = self.upstream.iter().filter(|pod| !self.running(pod).is_empty());
        running.filter_map(|pod| Some((pod, pod.flags.as_ref()?))).collect()
    }

    fn state(&self, controller: &'static str) -> State {
        let runs = self.upstream.iter().filter(|pod| self.running(pod).contains(&controller));
        match runs.map(|pod| pod.name.clone()).collect::<Vec<_>>() {
            pods if pods.is_empty() && self.has_hidden_upstream() => State::Unknown,
            pods if pods.is_empty() => State::Free,
            pods => State::RunsIn(pods),
        }
    }

    /// Returns the flags to set for windlass: settings of kube-controller-manager with another value in windlass.
    fn carried_flags(&self) -> BTreeSet<String> {
        let mut flags = BTreeSet::new();
        for pod in &self.upstream {
            for (flag, ours) in &self.expected.settings {
                let known = super::CARRIED_SETTINGS.iter().find(|known| *known == flag);
                let theirs = pod.flags.as_ref().and_then(|flags| flags.value(flag));
                let Some((known, theirs)) = known.zip(theirs) else { continue };
                match normalized(known, theirs) {
                    Ok(Some(value)) if value == *ours => {}
                    Ok(_) => drop(flags.insert(format!("--{flag}={theirs}"))),
                    Err(error) => {
                        flags.insert(format!("--{flag}: kube-controller-manager has {theirs:?}; {error}"));
                    }
                }
            }
        }
        flags
    }

    fn write_processes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "API server: {}", self.version)?;
        for pod in &self.upstream {
            let node = pod.node.as_deref().unwrap_or("no node");
            writeln!(f, "kube-controller-manager: Pod {} on {node}", pod.name)?;
        }
        match &self.upstream_lease {
            Some(Holder { identity, age }) => {
                writeln!(f, "kube-controller-manager: led by {identity}, renewed {age} s ago")?;
            }
            None => writeln!(f, "kube-controller-manager: no leader")?,
        }
        if let Some(Holder { identity, age }) = &self.own_lease {
            writeln!(f, "windlass: led by {identity}, renewed {age} s ago")?;
        }
        Ok(())
    }

    fn write_controllers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nControllers of windlass with these settings:")?;
        for name in &self.expected.controllers {
            match self.state(name) {
                State::Free => writeln!(f, "  {name}: free")?,
                State::Unknown => writeln!(f, "  {name}: unknown")?,
                State::RunsIn(pods) if pods.len() == self.upstream.len() => {
                    writeln!(f, "  {name}: runs in kube-controller-manager")?;
                }
                State::RunsIn(pods) => writeln!(f, "  {name}: runs in {} only", pods.join(", "))?,
            }
        }
        Ok(())
    }

    fn write_hidden_upstream(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hidden_leader().filter(|_| !self.upstream.is_empty()) {
            Some(leader) => write!(f, "\nStep: the leader {} is in none of these Pods.", leader.identity)?,
            None => write!(f, "\nStep: no Pod of kube-system shows a kube-controller-manager.")?,
        }
        writeln!(
            f,
            " If one runs elsewhere, disable these controllers in it, and verify that its metric \
             running_managed_controllers is not 1 for any of them. A provider's control plane can lack such a setting; then \
             windlass cannot replace these controllers. If none runs them, add --no-hidden-kube-controller-manager to this \
             check."
        )
    }

    fn write_steps(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_hidden_upstream() {
            self.write_hidden_upstream(f)?;
        }
        for (pod, reason) in self.unreadable_pods() {
            writeln!(f, "\nStep: the controllers of Pod {} are unknown: {reason}", pod.name)?;
        }
        let pods = self.pods_to_change();
        if !pods.is_empty() {
            writeln!(
                f,
                "\nStep: restart each kube-controller-manager with this flag, before windlass starts:"
            )?;
        }
        for (pod, flags) in pods {
            let value = flags.controllers_without(&self.expected.known, &self.expected.controllers);
            writeln!(f, "  {}: --controllers={value}", pod.name)?;
        }
        if !self.missing.is_empty() {
            let user = &self.expected.user;
            writeln!(
                f,
                "\nStep: grant the missing rights of {user}, for example by `windlass manifests rbac | kubectl apply -f -` \
                 with the same settings:"
            )?;
        }
        self.missing.iter().try_for_each(|right| writeln!(f, "  {right}"))
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_processes(f)?;
        self.write_controllers(f)?;
        self.write_steps(f)?;
        let carried = self.carried_flags();
        if !carried.is_empty() {
            writeln!(
                f,
                "\nFlags of kube-controller-manager with other values in windlass; set them to keep their effect:"
            )?;
        }
        carried.iter().try_for_each(|flag| writeln!(f, "  {flag}"))?;
        match self.remaining_steps() {
            0 => writeln!(f, "\nWindlass can start."),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for MissingRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { account, resource, name, namespace, verb } = self;
        if let Some(account) = account {
            write!(f, "ServiceAccount {account}: ")?;
        }
        write!(f, "{verb} {resource}")?;
        if let Some(name) = name {
            write!(f, " {name}")?;
        }
        match namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        }
    }
}
