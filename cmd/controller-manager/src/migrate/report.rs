//! The result of a check, and its text. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use windlass::controller::Descriptor;
use windlass::manager::Manifests;

use super::flags::Flags;
use super::{DEFAULT_ACCOUNT, normalized};

/// The flag with the certificates that this controller publishes.
const ROOT_CA_FILE: &str = "root-ca-file";
const ROOT_CA_PUBLISHER: &str = "root-ca-certificate-publisher-controller";

/// Controllers, settings and permissions of windlass.
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
    /// The Pods of which the user of the check states that they run none of these controllers.
    pub(super) stated: BTreeSet<String>,
    /// Its values of settings that kube-controller-manager has too, by flag.
    pub(super) settings: BTreeMap<String, String>,
}

/// A kube-controller-manager in a Pod of kube-system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UpstreamPod {
    pub(super) name: String,
    pub(super) node: Option<String>,
    /// The names and addresses of its node.
    pub(super) hosts: Vec<String>,
    /// `None` if the Pod does not show the command line.
    pub(super) flags: Option<Flags>,
}

impl UpstreamPod {
    /// Returns whether a holder of the Lease can be this process: its identity starts with the hostname, which is that
    /// of the node, or the name of the Pod.
    fn can_be(&self, holder: &Holder) -> bool {
        let host = holder.identity.rsplit_once('_').map_or(holder.identity.as_str(), |(host, _)| host);
        let names = self.hosts.iter().chain(&self.node).chain([&self.name]);
        names.into_iter().any(|name| is_same_host(name, host))
    }
}

/// Returns whether two names can be those of one host: they are equal, or one of them lacks the domain.
fn is_same_host(left: &str, right: &str) -> bool {
    let is_short = |name: &str, long: &str| {
        long.parse::<IpAddr>().is_err()
            && long.split_once('.').is_some_and(|(first, _)| first.eq_ignore_ascii_case(name))
    };
    left.eq_ignore_ascii_case(right) || is_short(left, right) || is_short(right, left)
}

/// The holder of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) identity: String,
    /// Seconds since the last renewal.
    pub(super) age: i64,
}

/// A permission that a user or ServiceAccount lacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MissingRight {
    /// `namespace:name` of a ServiceAccount; `None` for the account of the process.
    pub(super) account: Option<String>,
    /// Such as `deployments.apps` or `pods/status`.
    pub(super) resource: String,
    /// The only object to which the permission applies.
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
    /// No kube-controller-manager runs it.
    Off,
    /// These Pods run it.
    RunsIn(Vec<String>),
    /// A kube-controller-manager runs whose controllers are unknown.
    Unknown,
}

impl Check {
    /// Returns a check of a cluster that is not read yet.
    pub(super) fn new(expected: Expected) -> Self {
        Self {
            version: String::new(),
            upstream: Vec::new(),
            upstream_lease: None,
            own_lease: None,
            missing: Vec::new(),
            expected,
        }
    }

    /// Returns whether a step remains that no restart of kube-controller-manager completes.
    pub(super) fn needs_more_than_restarts(&self) -> bool {
        self.remaining_steps() > usize::from(!self.pods_to_change().is_empty())
    }

    /// Returns the reason to wait for restarts of kube-controller-manager, and adds its Pods to `restarts`. A Pod that
    /// ran one of the controllers must return with other flags: an absent Pod can return with the old ones.
    pub(super) fn reason_to_wait(&self, restarts: &mut BTreeSet<String>) -> Option<String> {
        let running: Vec<_> = self.pods_to_change().iter().map(|(pod, _)| pod.name.clone()).collect();
        restarts.extend(running.iter().cloned());
        if !running.is_empty() {
            return Some(format!("controllers of windlass run in {}", running.join(", ")));
        }
        restarts.retain(|name| self.upstream.iter().all(|pod| pod.name != *name));
        let absent = restarts.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        (!absent.is_empty()).then(|| {
            format!("{absent} must return with other flags; if its node was removed, run the check again")
        })
    }

    /// Returns the number of steps before windlass can start.
    pub(super) fn remaining_steps(&self) -> usize {
        let is_running = !self.pods_to_change().is_empty();
        let is_unknown = !self.unknown_pods().is_empty();
        let lacks_ca = self.missing_root_ca().is_some();
        [self.has_hidden_upstream(), is_unknown, is_running, lacks_ca, !self.missing.is_empty()]
            .into_iter()
            .filter(|it| *it)
            .count()
    }

    /// Returns a Pod that the user of the check names, but that is no kube-controller-manager.
    pub(super) fn stray_statement(&self) -> Option<&str> {
        let mut stated = self.expected.stated.iter().map(String::as_str);
        stated.find(|name| self.upstream.iter().all(|pod| pod.name != *name))
    }

    /// Returns whether a kube-controller-manager can run that no Pod shows: no Pod is visible, or none of them can be
    /// the leader.
    fn has_hidden_upstream(&self) -> bool {
        !self.expected.has_no_hidden_upstream && (self.upstream.is_empty() || self.hidden_leader().is_some())
    }

    /// Returns the leader if it is in no visible Pod.
    fn hidden_leader(&self) -> Option<&Holder> {
        let leader = self.upstream_lease.as_ref()?;
        (!self.upstream.iter().any(|pod| pod.can_be(leader))).then_some(leader)
    }

    /// Returns the reason why a Pod can run more than its visible flags show. A statement covers only this.
    fn unknown_reason(&self, pod: &UpstreamPod) -> Option<String> {
        if self.expected.stated.contains(&pod.name) {
            return None;
        }
        let Some(flags) = &pod.flags else { return Some("the Pod does not show its flags".to_owned()) };
        let entries = flags.unknown_controllers(&self.expected.known).join(", ");
        (!entries.is_empty())
            .then(|| format!("its --controllers has entries that name no controller: {entries}"))
    }

    /// Returns the Pods whose controllers are unknown, with the reason.
    fn unknown_pods(&self) -> Vec<(&UpstreamPod, String)> {
        self.upstream.iter().filter_map(|pod| Some((pod, self.unknown_reason(pod)?))).collect()
    }

    /// Returns the Pods whose visible flags run one of these controllers.
    fn pods_that_run(&self, controllers: &[&'static str]) -> Vec<(&UpstreamPod, &Flags)> {
        let pods = self.upstream.iter().filter_map(|pod| Some((pod, pod.flags.as_ref()?)));
        pods.filter(|(_, flags)| !flags.enabled(&self.expected.known, controllers).is_empty()).collect()
    }

    fn pods_to_change(&self) -> Vec<(&UpstreamPod, &Flags)> {
        self.pods_that_run(&self.expected.controllers)
    }

    fn state(&self, controller: &'static str) -> State {
        let runs = self.pods_that_run(&[controller]);
        match runs.into_iter().map(|(pod, _)| pod.name.clone()).collect::<Vec<_>>() {
            pods if !pods.is_empty() => State::RunsIn(pods),
            _ if self.has_hidden_upstream() || !self.unknown_pods().is_empty() => State::Unknown,
            _ => State::Off,
        }
    }

    /// Returns the controllers that neither kube-controller-manager nor windlass will run.
    fn orphaned_controllers(&self) -> Vec<&'static str> {
        let Expected { known, controllers, .. } = &self.expected;
        let others = known.iter().map(|one| one.name).filter(|name| !controllers.contains(name));
        others.filter(|name| !self.upstream.is_empty() && self.state(name) == State::Off).collect()
    }

    /// Returns the CA of kube-controller-manager if windlass publishes the CA of its connection instead.
    fn missing_root_ca(&self) -> Option<&str> {
        let Expected { controllers, settings, .. } = &self.expected;
        let is_published = controllers.contains(&ROOT_CA_PUBLISHER);
        let is_set = settings.get(ROOT_CA_FILE).is_some_and(|file| !file.is_empty());
        let mut files = self.upstream.iter().filter_map(|pod| pod.flags.as_ref()?.value(ROOT_CA_FILE));
        files.find(|file| is_published && !is_set && !file.is_empty())
    }

    /// Returns the flags to set for windlass: settings of kube-controller-manager with another value in windlass.
    fn carried_flags(&self) -> BTreeSet<String> {
        let mut flags = BTreeSet::new();
        for pod in &self.upstream {
            // The file has another path in another Pod; without a file it is a step.
            for (flag, ours) in self.expected.settings.iter().filter(|(flag, _)| *flag != ROOT_CA_FILE) {
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
            None => writeln!(f, "kube-controller-manager: no process holds its Lease")?,
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
                State::Off => writeln!(f, "  {name}: off in kube-controller-manager")?,
                State::Unknown => writeln!(f, "  {name}: unknown in kube-controller-manager")?,
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
            " If one runs elsewhere, disable these controllers in it, and verify that /healthz?verbose of its leader lists \
             none of them. A provider's control plane can lack such a setting; then windlass cannot replace these \
             controllers. If no other process runs them, add --assert-no-other-kube-controller-manager to this check."
        )
    }

    fn write_unknown_pods(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (pod, reason) in self.unknown_pods() {
            writeln!(
                f,
                "\nStep: the controllers of Pod {name} are unknown: {reason}. Read the flags of the process. If it runs \
                 none of the controllers above, add --assert-disabled-in={name} to this check.",
                name = pod.name
            )?;
        }
        Ok(())
    }

    fn write_missing_root_ca(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(theirs) = self.missing_root_ca() else { return Ok(()) };
        writeln!(
            f,
            "\nStep: set --root-ca-file to the certificates of {theirs}, the value in kube-controller-manager. Without it, \
             windlass publishes the CA of its connection in kube-root-ca.crt of each namespace."
        )
    }

    fn write_steps(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_hidden_upstream() {
            self.write_hidden_upstream(f)?;
        }
        self.write_unknown_pods(f)?;
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
        self.write_missing_root_ca(f)?;
        if !self.missing.is_empty() {
            let user = &self.expected.user;
            let option = if user == DEFAULT_ACCOUNT { String::new() } else { format!(" --user={user}") };
            writeln!(
                f,
                "\nStep: grant the missing permissions of {user}, for example by `windlass manifests rbac{option} | \
                 kubectl apply -f -` with the same settings:"
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
        let orphaned = self.orphaned_controllers();
        if !orphaned.is_empty() {
            let names = orphaned.join(", ");
            writeln!(f, "\nWarning: neither kube-controller-manager nor windlass will run: {names}")?;
        }
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
