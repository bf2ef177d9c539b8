//! Reads from the API server what a check needs. Nothing is changed: an access review is a question, not an object.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Container, Node, Pod};
use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef, Subject};
use kube::api::{Api, ListParams, PostParams};
use windlass::client::one_line;
use windlass::env::Env;
use windlass::manager::Manifests;

use super::command::{Command, Variables, command};
use super::flags::{Flags, UPSTREAM};
use super::report::{Check, Expected, Holder, MissingRight, UpstreamPod};

const NAMESPACE: &str = "kube-system";
/// Labels with the name of the component: kubeadm uses the first, kOps and Talos the second.
const LABELS: [&str; 2] = ["component", "k8s-app"];
/// Concurrent access reviews.
const REVIEWS: usize = 16;

/// The cluster to check.
pub(super) struct Cluster {
    pub(super) env: Env,
    pub(super) client: kube::Client,
    pub(super) server: String,
}

/// A permission to review: the ServiceAccount that needs it, and its attributes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    /// `namespace:name`; `None` for the account of the process.
    account: Option<String>,
    namespace: Option<String>,
    group: String,
    resource: String,
    subresource: Option<String>,
    name: Option<String>,
    verb: String,
}

impl Cluster {
    /// Reads the version, kube-controller-manager and the Leases. After an error the check is as before.
    pub(super) async fn read(&self, check: &mut Check) -> Result<()> {
        let version = self.client.apiserver_version().await;
        let version = version.map_err(|error| self.unreadable("the version of the API server", &error))?;
        let upstream = self.upstream_pods().await?;
        let upstream_lease = self.lease(NAMESPACE, UPSTREAM).await?;
        let own_lease = match &check.expected.lease {
            Some((namespace, name)) => self.lease(namespace, name).await?,
            None => None,
        };
        check.version = version.git_version;
        (check.upstream, check.upstream_lease, check.own_lease) = (upstream, upstream_lease, own_lease);
        Ok(())
    }

    /// Reads the permissions that are denied.
    pub(super) async fn review(&self, check: &mut Check) -> Result<()> {
        check.missing = self.missing_rights(&check.expected).await?;
        Ok(())
    }

    async fn upstream_pods(&self) -> Result<Vec<UpstreamPod>> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), NAMESPACE);
        let found = pods.list(&ListParams::default()).await;
        let found = found.map_err(|error| self.unreadable("the Pods of kube-system", &error))?;
        let mut found: Vec<_> = found.items.into_iter().filter_map(upstream_pod).collect();
        found.sort_by(|left, right| left.name.cmp(&right.name));
        for pod in &mut found {
            pod.hosts = self.hosts(pod.node.as_deref()).await?;
        }
        Ok(found)
    }

    /// Returns the names of a node's host. A static Pod can outlive the object of its node.
    async fn hosts(&self, node: Option<&str>) -> Result<Vec<String>> {
        let Some(name) = node else { return Ok(Vec::new()) };
        let found = Api::<Node>::all(self.client.clone()).get_opt(name).await;
        let found = found.map_err(|error| self.unreadable(&format!("the Node {name}"), &error))?;
        let addresses = found.and_then(|node| node.status?.addresses).unwrap_or_default();
        Ok(addresses.into_iter().map(|address| address.address).collect())
    }

    async fn lease(&self, namespace: &str, name: &str) -> Result<Option<Holder>> {
        let leases = Api::<Lease>::namespaced(self.client.clone(), namespace);
        let found = leases.get_opt(name).await;
        let found = found.map_err(|error| self.unreadable(&format!("the Leases of {namespace}"), &error))?;
        Ok(found.and_then(|lease| holder(lease, self.env.wall())))
    }

    /// Returns the permissions that are denied, sorted.
    async fn missing_rights(&self, expected: &Expected) -> Result<Vec<MissingRight>> {
        let rights = required_rights(&expected.manifests, &expected.account);
        let denied = stream::iter(rights)
            .map(async |right| Ok((self.is_allowed(&right, &expected.user).await?, right)))
            .buffered(REVIEWS)
            .try_filter_map(async |(is_allowed, right)| Ok((!is_allowed).then(|| right.missing())));
        denied.try_collect().await
    }

    /// Returns whether the ServiceAccount that needs the permission has it; `user` is that of the process.
    async fn is_allowed(&self, right: &Right, user: &str) -> Result<bool> {
        let attributes = Some(right.attributes());
        let user = match &right.account {
            Some(account) => format!("system:serviceaccount:{account}"),
            None => user.to_owned(),
        };
        let groups = Some(groups_of(&user));
        let spec = SubjectAccessReviewSpec {
            user: Some(user),
            groups,
            resource_attributes: attributes,
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = Api::all(self.client.clone()).create(&PostParams::default(), &review).await;
        let status = answer.map(|review: SubjectAccessReview| review.status);
        let status = status.map_err(|error| self.unreadable("the permissions of the user", &error))?;
        Ok(status.is_some_and(|SubjectAccessReviewStatus { allowed, .. }| allowed))
    }

    fn unreadable(&self, what: &str, error: &kube::Error) -> anyhow::Error {
        let remedy = match error {
            kube::Error::Api(status) if status.code == 401 || status.code == 403 => {
                "use the kubeconfig of an administrator"
            }
            _ => "check the address of the API server in --kubeconfig",
        };
        anyhow!("cannot read {what} from {}: {}; {remedy}", self.server, one_line(error))
    }
}

/// Returns the groups that the API server adds to a user.
fn groups_of(user: &str) -> Vec<String> {
    let mut groups = vec!["system:authenticated".to_owned()];
    if let Some((namespace, _)) =
        user.strip_prefix("system:serviceaccount:").and_then(|it| it.split_once(':'))
    {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    groups
}

/// Returns the Pod if it runs kube-controller-manager: by a label of the usual installers, or by a container of that
/// name or with that command. A Pod that has ended runs nothing.
pub(super) fn upstream_pod(pod: Pod) -> Option<UpstreamPod> {
    let phase = pod.status.and_then(|status| status.phase);
    if matches!(phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let spec = pod.spec.unwrap_or_default();
    let labels = pod.metadata.labels.unwrap_or_default();
    let is_labeled = LABELS.iter().any(|label| labels.get(*label).is_some_and(|value| value == UPSTREAM));
    let mut commands = spec.containers.iter().map(command_of).filter(|command| *command != Command::Other);
    // Two processes in one Pod have no common flags.
    let flags = match (commands.next(), commands.next()) {
        (Some(Command::Visible(words)), None) => Some(Flags::parse(words.iter().map(String::as_str))),
        (None, _) if !is_labeled => return None,
        _ => None,
    };
    Some(UpstreamPod {
        name: pod.metadata.name.unwrap_or_default(),
        node: spec.node_name,
        hosts: Vec::new(),
        flags,
    })
}

/// Returns what a container runs. In a container of that name, flags without a program belong to that of the image.
fn command_of(container: &Container) -> Command {
    let words = || container.command.iter().chain(&container.args).flatten().cloned();
    let values =
        container.env.iter().flatten().filter_map(|one| Some((one.name.clone(), one.value.clone()?)));
    let variables: Variables = values.collect();
    let is_named = container.name == UPSTREAM;
    match command(&words().collect::<Vec<_>>(), &variables) {
        Command::Other if is_named && container.command.is_none() => {
            let image = std::iter::once(UPSTREAM.to_owned());
            command(&image.chain(words()).collect::<Vec<_>>(), &variables)
        }
        Command::Other if is_named => Command::Hidden,
        command => command,
    }
}

/// Returns the holder of a Lease; `None` if it is free.
fn holder(lease: Lease, now: Timestamp) -> Option<Holder> {
    let spec = lease.spec?;
    let identity = spec.holder_identity.filter(|identity| !identity.is_empty())?;
    // The clock of the holder can be ahead.
    let age = (now.as_second() - spec.renew_time?.0.as_second()).max(0);
    Some(Holder { identity, age })
}

/// Returns the permissions in all roles, with the ServiceAccount that each role is bound to.
fn required_rights(manifests: &Manifests, process: &str) -> Vec<Right> {
    let Manifests { cluster_roles, roles, cluster_role_bindings, role_bindings, .. } = manifests;
    let in_cluster = cluster_role_bindings.iter().flat_map(|binding| {
        let rules =
            cluster_roles.iter().filter(|role| is_named(&binding.role_ref, role.metadata.name.as_deref()));
        let rules = rules.flat_map(|role| role.rules.iter().flatten());
        rights(binding.subjects.iter().flatten(), rules, None, process)
    });
    let in_namespaces = role_bindings.iter().flat_map(|binding| {
        let namespace = binding.metadata.namespace.as_deref();
        let rules = roles.iter().filter(|role| role.metadata.namespace.as_deref() == namespace);
        let rules = rules.filter(|role| is_named(&binding.role_ref, role.metadata.name.as_deref()));
        let rules = rules.flat_map(|role| role.rules.iter().flatten());
        rights(binding.subjects.iter().flatten(), rules, namespace, process)
    });
    in_cluster.chain(in_namespaces).collect::<BTreeSet<_>>().into_iter().collect()
}

fn is_named(reference: &RoleRef, name: Option<&str>) -> bool {
    Some(reference.name.as_str()) == name
}

fn rights<'a>(
    subjects: impl Iterator<Item = &'a Subject> + Clone,
    rules: impl Iterator<Item = &'a PolicyRule>,
    namespace: Option<&str>,
    process: &str,
) -> Vec<Right> {
    let mut rights = Vec::new();
    for rule in rules {
        for subject in subjects.clone() {
            let home = subject.namespace.as_deref().unwrap_or_default();
            let account = (subject.name != process).then(|| format!("{home}:{}", subject.name));
            add_rights(&mut rights, rule, &account, namespace);
        }
    }
    rights
}

fn add_rights(rights: &mut Vec<Right>, rule: &PolicyRule, account: &Option<String>, namespace: Option<&str>) {
    let names: Vec<Option<String>> = match rule.resource_names.as_deref() {
        None | Some([]) => vec![None],
        Some(names) => names.iter().cloned().map(Some).collect(),
    };
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            let (resource, subresource) = match resource.split_once('/') {
                Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
                None => (resource.as_str(), None),
            };
            for verb in &rule.verbs {
                rights.extend(names.iter().map(|name| Right {
                    account: account.clone(),
                    namespace: namespace.map(str::to_owned),
                    group: group.clone(),
                    resource: resource.to_owned(),
                    subresource: subresource.clone(),
                    name: name.clone(),
                    verb: verb.clone(),
                }));
            }
        }
    }
}

impl Right {
    fn attributes(&self) -> ResourceAttributes {
        ResourceAttributes {
            group: Some(self.group.clone()),
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            resource: Some(self.resource.clone()),
            subresource: self.subresource.clone(),
            verb: Some(self.verb.clone()),
            ..ResourceAttributes::default()
        }
    }

    fn missing(self) -> MissingRight {
        let Self { account, namespace, group, resource, subresource, name, verb } = self;
        let resource = match subresource {
            Some(subresource) => format!("{resource}/{subresource}"),
            None => resource,
        };
        let resource = if group.is_empty() { resource } else { format!("{resource}.{group}") };
        MissingRight { account, resource, name, namespace, verb }
    }
}
