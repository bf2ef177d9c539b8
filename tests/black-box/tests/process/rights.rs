//! Runs the process in every mode with roles that contain exactly its declared rules. The process starts, is elected,
//! works and stops, and the API server denies no request.

mod modes;
mod work;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role, RoleBinding, Subject};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use windlass_black_box::audit::{AUDITED, Audit, Write};
use windlass_black_box::control_plane::with_control_plane;
use windlass_black_box::fixtures;
use windlass_black_box::implementation::{exits_gracefully, ready};
use windlass_black_box::test_namespace::TestNamespace;
use windlass_black_box::wait::eventually;
use windlass_client::Identities;
use windlass_controllers::{ControllerOptions, registrations};
use windlass_env::Env;
use windlass_harness::{ControlPlane, ControlPlaneOptions, ManagerProcess, WORKLOAD_CONTROLLERS};
use windlass_manager::{ControllerSelection, ManagerConfig, Registry};
use windlass_object::{Rule, Verb};

use self::modes::{RunMode, WAYS};
use self::work::all_work_is_done;
use crate::admin::grant;
use crate::identities::ACCOUNT;

/// The API server's coordinator takes some seconds to elect.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Namespace of Leases.
const SYSTEM: &str = "kube-system";

/// The declared rules of a mode, by identity.
struct Asked {
    /// Rules of the process in the namespace of Leases and ServiceAccounts.
    in_system: Vec<Rule>,
    /// Rules of the process in all namespaces.
    everywhere: Vec<Rule>,
    /// Rules of each ServiceAccount, if controllers have them, in all namespaces.
    accounts: Vec<(&'static str, Vec<Rule>)>,
}

impl RunMode {
    /// Returns the declared rules of a mode.
    fn declared(&self) -> Result<Asked> {
        let mut config = ManagerConfig::new(self.name);
        config.controllers = ControllerSelection::parse(WORKLOAD_CONTROLLERS);
        (self.configure)(&mut config);
        let mut registry = Registry::new();
        for registration in registrations(&ControllerOptions::default()) {
            registry.register(registration)?;
        }
        let with_accounts = config.client.identities != Identities::Shared;
        let mut asked = Asked { in_system: Vec::new(), everywhere: Vec::new(), accounts: Vec::new() };
        for one in registry.declarations_for(&Env::system("rights"), &config)? {
            if [Registry::PROCESS.name, Registry::ACCOUNTS.name].contains(&one.descriptor.name) {
                asked.in_system.extend(one.rules);
            } else if with_accounts {
                // The process itself reads the watched kinds.
                let (watched, own): (Vec<_>, Vec<_>) = one.rules.iter().map(watched_or_own).unzip();
                asked.everywhere.extend(watched.into_iter().flatten());
                asked.accounts.push((one.descriptor.client_name, own.into_iter().flatten().collect()));
            } else {
                asked.everywhere.extend(one.rules);
            }
        }
        Ok(asked)
    }

    /// Returns the users of its controllers' ServiceAccounts.
    fn users_of_accounts(&self) -> Result<Vec<String>> {
        Ok(self.declared()?.accounts.iter().map(|(name, _)| format!("{ACCOUNT}{name}")).collect())
    }

    fn lease_names(&self) -> Vec<String> {
        self.leases.iter().map(|lease| format!("{}{lease}", self.name)).collect()
    }

    /// Creates roles with the declared rules, and binds them to the user and to the ServiceAccounts.
    async fn grant(&self, plane: &ControlPlane) -> Result<()> {
        let asked = self.declared()?;
        let names = if self.named { self.lease_names() } else { Vec::new() };
        let in_system = asked.in_system.iter().flat_map(|rule| cut_down(rule, &names));
        let user = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": self.name });
        let items = |rules: &[Rule]| rules.iter().map(|rule| item(rule, &[])).collect();
        grant(plane, self.name, items(&asked.everywhere), user.clone()).await?;
        self.grant_in_system(plane, in_system.collect(), &user).await?;
        for (verb, resource, namespace) in [("list", "pods", ""), ("create", "events", SYSTEM)] {
            let what = json!({ "verb": verb, "resource": resource, "namespace": namespace });
            let may = || may(plane, self.name, what.clone());
            eventually("the roles are in effect", may, |may| *may).await?;
        }
        for (account, rules) in &asked.accounts {
            self.grant_to_account(plane, account, items(rules)).await?;
        }
        Ok(())
    }

    /// Binds a role with these rules to a ServiceAccount, and removes its other bindings, because every API server
    /// binds upstream's roles at its start.
    async fn grant_to_account(&self, plane: &ControlPlane, account: &str, rules: Value) -> Result<()> {
        let bindings: Api<ClusterRoleBinding> = Api::all(plane.client().await);
        let is_its = |it: &Subject| it.kind == "ServiceAccount" && it.name == account;
        for binding in bindings.list(&ListParams::default()).await? {
            if binding.subjects.iter().flatten().any(is_its) {
                bindings.delete(&binding.name_any(), &DeleteParams::default()).await?;
            }
        }
        let user = format!("{ACCOUNT}{account}");
        let events = json!({ "verb": "create", "resource": "events" });
        let may = || may(plane, &user, events.clone());
        eventually("the account may do nothing", may, |may| !may).await?;
        let subject = json!({ "kind": "ServiceAccount", "name": account, "namespace": SYSTEM });
        grant(plane, &format!("{}-{account}", self.name), rules, subject).await?;
        eventually("the account's role is in effect", may, |may| *may).await?;
        Ok(())
    }

    async fn grant_in_system(&self, plane: &ControlPlane, rules: Value, user: &Value) -> Result<()> {
        let (client, options) = (plane.client().await, PostParams::default());
        let metadata = json!({ "name": self.name });
        let role = json!({ "metadata": metadata, "rules": rules });
        Api::<Role>::namespaced(client.clone(), SYSTEM)
            .create(&options, &serde_json::from_value(role)?)
            .await?;
        let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": self.name });
        let binding = json!({ "metadata": metadata, "roleRef": role, "subjects": [user] });
        let bindings = Api::<RoleBinding>::namespaced(client, SYSTEM);
        bindings.create(&options, &serde_json::from_value(binding)?).await?;
        Ok(())
    }

    /// Starts a process in this mode as this user.
    async fn start(&self, plane: &ControlPlane, kubeconfig: &Path) -> Result<ManagerProcess> {
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let lease = format!("--leader-elect-resource-name={}", self.name);
        let mut arguments = vec![kubeconfig.as_str(), lease.as_str()];
        arguments.extend(self.flags);
        let manager = ManagerProcess::start(plane, &arguments).await?;
        ready(&manager, TIMEOUT).await?;
        Ok(manager)
    }

    /// Starts a process, lets it work, and stops it. With Leases it takes over from another process of the same mode.
    async fn run(&self, plane: &ControlPlane, audit: &Audit) -> Result<()> {
        let heard = ReceivedRequests {
            way: self,
            accounts: self.users_of_accounts()?,
            audit,
            before: audit.all_writes("")?.len(),
        };
        let kubeconfig = plane.kubeconfig_for(self.name, self.name, Some(AUDITED))?;
        let manager = self.start(plane, &kubeconfig).await?;
        let manager = if self.leases.is_empty() {
            manager
        } else {
            let next = self.start(plane, &kubeconfig).await?;
            exits_gracefully(&manager, TIMEOUT).await?;
            next
        };
        let namespace =
            TestNamespace { client: plane.client().await, namespace: plane.namespace(self.name).await? };
        let worked = all_work_is_done(&namespace).await;
        // A denied request is more informative than missing work, so it is reported first.
        heard.refused_nothing()?;
        worked?;
        exits_gracefully(&manager, TIMEOUT).await?;
        heard.refused_nothing()?;
        // The audit log has no reads by ServiceAccounts, but the process logs denied requests.
        let log = std::fs::read_to_string(manager.log()).context("reading the log")?;
        ensure!(
            !log.contains("; add to a "),
            "the log reports a missing rule: see {}",
            manager.log().display()
        );
        heard.it_did_all()?;
        heard.each_wrote_its_own()
    }
}

/// The requests of one mode in the audit log.
struct ReceivedRequests<'a> {
    way: &'a RunMode,
    /// Users of its controllers, if they differ from the process.
    accounts: Vec<String>,
    audit: &'a Audit,
    /// Number of earlier requests.
    before: usize,
}

impl ReceivedRequests<'_> {
    /// Returns its requests so far, reads and writes.
    fn asked(&self) -> Result<Vec<Write>> {
        let mut asked = self.audit.all_writes("")?.split_off(self.before);
        asked.retain(|request| {
            request.user.username == self.way.name || self.accounts.contains(&request.user.username)
        });
        Ok(asked)
    }

    fn refused_nothing(&self) -> Result<()> {
        let mut refused = self.asked()?;
        refused.retain(|request| request.response_status.is_some_and(|answer| answer.code == 403));
        ensure!(refused.is_empty(), "{} was refused {refused:#?}", self.way.name);
        Ok(())
    }

    /// Checks that it did all work of the controllers in this mode.
    fn it_did_all(&self) -> Result<()> {
        let (asked, name) = (self.asked()?, self.way.name);
        // Streaming lists return existing objects in the watch.
        for verb in ["watch", "create", "patch", "update", "delete"] {
            let done = asked.iter().any(|request| request.verb == verb && request.succeeded());
            ensure!(done, "{name} was to {verb}");
        }
        for lease in self.way.lease_names() {
            ensure!(asked.iter().any(|request| wrote(request, &lease)), "{name} was to hold {lease}");
        }
        let candidate = asked.iter().any(|request| request.resource() == "leasecandidates");
        ensure!(candidate == (name == "coordinated"), "{name} is a candidate: {candidate}");
        Ok(())
    }

    /// Checks that each controller wrote with its own ServiceAccount and the process wrote nothing for them.
    fn each_wrote_its_own(&self) -> Result<()> {
        let asked = self.asked()?;
        for account in &self.accounts {
            let wrote = asked.iter().any(|it| it.user.username == *account && it.succeeded());
            ensure!(wrote, "{account} wrote nothing");
        }
        let theirs = |it: &&Write| {
            let own = ["leases", "events", "serviceaccounts"].contains(&it.resource());
            it.user.username == self.way.name && it.verb != "watch" && it.verb != "list" && !own
        };
        let written: Vec<_> = asked.iter().filter(theirs).filter(|it| !it.resource().is_empty()).collect();
        ensure!(self.accounts.is_empty() || written.is_empty(), "the process itself asked {written:#?}");
        Ok(())
    }
}

/// Returns whether a Lease of this name was written.
fn wrote(request: &Write, lease: &str) -> bool {
    request.resource() == "leases"
        && request.response_object["metadata"]["name"] == lease
        && request.succeeded()
}

/// Returns the rule as RBAC, restricted to the named objects if there are any.
fn item(rule: &Rule, names: &[String]) -> Value {
    let verbs: Vec<String> = rule.verbs.iter().map(ToString::to_string).collect();
    let mut item = json!({ "apiGroups": [rule.group], "resources": [rule.resource], "verbs": verbs });
    if !names.is_empty() {
        item["resourceNames"] = json!(names);
    }
    item
}

/// Returns the rule, restricted to the Leases with known names except for creation.
fn cut_down(rule: &Rule, names: &[String]) -> Vec<Value> {
    if rule.resource != "leases" || names.is_empty() {
        return vec![item(rule, &[])];
    }
    let (create, rest): (Vec<Verb>, Vec<Verb>) = rule.verbs.iter().partition(|verb| **verb == Verb::Create);
    let of = |verbs: Vec<Verb>| Rule::new(rule.group.clone(), rule.resource.clone(), verbs);
    vec![item(&of(create), &[]), item(&of(rest), names)]
}

/// Splits a rule into the part for informers and the part for the controller itself.
fn watched_or_own(rule: &Rule) -> (Option<Rule>, Option<Rule>) {
    let (watched, own): (Vec<Verb>, Vec<Verb>) =
        rule.verbs.iter().partition(|verb| matches!(verb, Verb::List | Verb::Watch));
    let some = |verbs: Vec<Verb>| {
        (!verbs.is_empty()).then(|| Rule::new(rule.group.clone(), rule.resource.clone(), verbs))
    };
    (some(watched), some(own))
}

/// Returns whether the API server allows `user` the access `what`, in the format of `resourceAttributes`.
pub(crate) async fn may(plane: &ControlPlane, user: &str, what: Value) -> Result<bool> {
    let review = json!({ "metadata": {}, "spec": { "user": user, "resourceAttributes": what } });
    let reviews: Api<SubjectAccessReview> = Api::all(plane.client().await);
    let answer = reviews.create(&PostParams::default(), &serde_json::from_value(review)?).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

// parity: roles-written-hand
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn declared_rbac_rules_suffice_in_every_run_mode() -> Result<()> {
    let options = ControlPlaneOptions::default().nodes(0).scheduler(false);
    let options = options
        .api_server_arg("--feature-gates=CoordinatedLeaderElection=true")
        .api_server_arg("--runtime-config=coordination.k8s.io/v1beta1=true");
    with_control_plane(options, async |plane, audit| {
        let nodes: Api<Node> = Api::all(plane.client().await);
        nodes.create(&PostParams::default(), &fixtures::node("node")).await?;
        for way in WAYS {
            way.grant(plane).await.with_context(|| format!("granting {}", way.name))?;
            way.run(plane, audit).await.with_context(|| format!("running {}", way.name))?;
        }
        Ok(())
    })
    .await
}
