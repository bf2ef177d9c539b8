//! Roles that are made from what a process declares, and nothing else, for every way to run: with them it starts, is
//! elected, works and ends, and the API server refuses it nothing.

use std::num::NonZeroU16;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{Endpoints, Event, Pod, ReplicationController, Service};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use windlass_black_box::audit::{AUDITED, Audit, Write};
use windlass_black_box::fixtures;
use windlass_black_box::stage::on_plane;
use windlass_black_box::subject::ready;
use windlass_black_box::wait::{eventually, eventually_within};
use windlass_black_box::workload::Workload as _;
use windlass_black_box::world::World;
use windlass_controllers::{Options, registrations};
use windlass_election::CoordinatedConfig;
use windlass_env::Env;
use windlass_harness::{Manager, Plane, PlaneOptions};
use windlass_manager::{ElectionGroup, ManagerConfig, Registry};
use windlass_object::{Rule, Verb};

use crate::admin::grant;

/// The API server's coordinator takes some seconds to elect.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where Leases are.
const SYSTEM: &str = "kube-system";

/// A way to run.
struct Way {
    /// Its user, its roles and its Lease are called so.
    name: &'static str,
    flags: &'static [&'static str],
    /// The same in a configuration.
    configure: fn(&mut ManagerConfig),
    /// What follows its name in the names of the Leases that it holds.
    leases: &'static [&'static str],
    /// Whether these are the only ones that it asks for, so that they can stand in the role.
    named: bool,
}

const WAYS: [Way; 5] = [
    Way { name: "alone", flags: &["--leader-elect=false"], configure: alone, leases: &[], named: true },
    Way { name: "elected", flags: &[], configure: |_| {}, leases: &[""], named: true },
    Way {
        name: "groups",
        flags: &["--leader-elect-group=workloads=replicaset", "--leader-elect-group=network=endpoint"],
        configure: in_groups,
        leases: &["", "-workloads", "-network"],
        named: true,
    },
    Way {
        name: "shards",
        flags: &["--shards=2"],
        configure: |config| config.shards = NonZeroU16::new(2),
        leases: &["-shard-0", "-shard-1"],
        named: false,
    },
    Way {
        name: "coordinated",
        flags: &["--leader-elect-coordinated"],
        configure: coordinated,
        leases: &[""],
        named: true,
    },
];

fn alone(config: &mut ManagerConfig) {
    config.election = None;
}

fn in_groups(config: &mut ManagerConfig) {
    let groups = [("workloads", "replicaset"), ("network", "endpoint")];
    config.groups = groups.map(|(group, only)| ElectionGroup::new(group, [only])).into();
}

fn coordinated(config: &mut ManagerConfig) {
    if let Some(election) = &mut config.election {
        election.coordinated = Some(CoordinatedConfig::new("1.0.0"));
    }
}

impl Way {
    fn lease_names(&self) -> Vec<String> {
        self.leases.iter().map(|lease| format!("{}{lease}", self.name)).collect()
    }

    /// Makes roles of what is declared, and binds them to the user.
    async fn grant(&self, plane: &Plane) -> Result<()> {
        let mut config = ManagerConfig::new(self.name);
        (self.configure)(&mut config);
        let mut registry = Registry::new();
        for registration in registrations(&Options::default()) {
            registry.register(registration)?;
        }
        let declarations = registry.declarations_for(&Env::system("rights"), &config)?;
        let (own, of_controllers): (Vec<_>, Vec<_>) =
            declarations.iter().partition(|one| one.descriptor.name == Registry::PROCESS.name);
        let everywhere = of_controllers.iter().flat_map(|one| &one.rules).map(|rule| item(rule, &[]));
        let names = if self.named { self.lease_names() } else { Vec::new() };
        let in_system = own.iter().flat_map(|one| &one.rules).flat_map(|rule| cut_down(rule, &names));
        let user = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": self.name });
        grant(plane, self.name, everywhere.collect(), user.clone()).await?;
        self.grant_in_system(plane, in_system.collect(), &user).await?;
        for (verb, resource, namespace) in [("list", "pods", ""), ("create", "events", SYSTEM)] {
            let may = || may(plane, self.name, verb, resource, namespace);
            eventually("the roles are in effect", may, |may| *may).await?;
        }
        Ok(())
    }

    async fn grant_in_system(&self, plane: &Plane, rules: Value, user: &Value) -> Result<()> {
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

    /// A process that runs so, as this user.
    async fn start(&self, plane: &Plane, kubeconfig: &Path) -> Result<Manager> {
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let lease = format!("--leader-elect-resource-name={}", self.name);
        let mut arguments = vec![kubeconfig.as_str(), lease.as_str()];
        arguments.extend(self.flags);
        let manager = Manager::start(plane, &arguments).await?;
        ready(&manager, PATIENCE).await?;
        Ok(manager)
    }

    /// Starts it, has it work and ends it. It follows another that is elected in the same way, which ends before.
    async fn run(&self, plane: &Plane, audit: &Audit) -> Result<()> {
        let kubeconfig = plane.kubeconfig_for(self.name, self.name, Some(AUDITED))?;
        let manager = self.start(plane, &kubeconfig).await?;
        let manager = if self.leases.is_empty() {
            manager
        } else {
            let next = self.start(plane, &kubeconfig).await?;
            ends_in_order(&manager).await?;
            next
        };
        let world = World { client: plane.client().await, namespace: plane.namespace(self.name).await? };
        let worked = all_work_is_done(&world).await;
        // What it was refused says more than what was not done.
        self.was_refused_nothing(audit)?;
        worked?;
        ends_in_order(&manager).await?;
        self.was_refused_nothing(audit)?;
        self.did_all(audit)
    }

    /// What it asked of the API server so far, to read and to write.
    fn asked(&self, audit: &Audit) -> Result<Vec<Write>> {
        let mut asked = audit.all_writes("")?;
        asked.retain(|request| request.user.username == self.name);
        Ok(asked)
    }

    fn was_refused_nothing(&self, audit: &Audit) -> Result<()> {
        let mut refused = self.asked(audit)?;
        refused.retain(|request| request.response_status.is_some_and(|answer| answer.code == 403));
        ensure!(refused.is_empty(), "{} was refused {refused:#?}", self.name);
        Ok(())
    }

    /// It did all that controllers do, and ran in this way.
    fn did_all(&self, audit: &Audit) -> Result<()> {
        let asked = self.asked(audit)?;
        // What is there comes with the watch.
        for verb in ["watch", "create", "patch", "update", "delete"] {
            let done = asked.iter().any(|request| request.verb == verb && request.succeeded());
            ensure!(done, "{} was to {verb}", self.name);
        }
        for lease in self.lease_names() {
            ensure!(asked.iter().any(|request| wrote(request, &lease)), "{} was to hold {lease}", self.name);
        }
        let candidate = asked.iter().any(|request| request.resource() == "leasecandidates");
        ensure!(candidate == (self.name == "coordinated"), "{} is a candidate: {candidate}", self.name);
        Ok(())
    }
}

/// A Lease of this name was written.
fn wrote(request: &Write, lease: &str) -> bool {
    request.resource() == "leases"
        && request.response_object["metadata"]["name"] == lease
        && request.succeeded()
}

/// A rule as roles have it, for these objects alone if any are named.
fn item(rule: &Rule, names: &[String]) -> Value {
    let verbs: Vec<String> = rule.verbs.iter().map(ToString::to_string).collect();
    let mut item = json!({ "apiGroups": [rule.group], "resources": [rule.resource], "verbs": verbs });
    if !names.is_empty() {
        item["resourceNames"] = json!(names);
    }
    item
}

/// The rule, and where it is about Leases whose names are known, about these alone, but for making them.
fn cut_down(rule: &Rule, names: &[String]) -> Vec<Value> {
    if rule.resource != "leases" || names.is_empty() {
        return vec![item(rule, &[])];
    }
    let (create, rest): (Vec<Verb>, Vec<Verb>) = rule.verbs.iter().partition(|verb| **verb == Verb::Create);
    let of = |verbs: Vec<Verb>| Rule::new(rule.group.clone(), rule.resource.clone(), verbs);
    vec![item(&of(create), &[]), item(&of(rest), names)]
}

async fn ends_in_order(manager: &Manager) -> Result<()> {
    manager.terminate();
    let status = manager.wait_exit(PATIENCE).await?;
    ensure!(status.code() == Some(0), "it ended with {status}");
    Ok(())
}

/// Whether the API server lets `user` do so.
async fn may(plane: &Plane, user: &str, verb: &str, resource: &str, namespace: &str) -> Result<bool> {
    let what = json!({ "verb": verb, "resource": resource, "namespace": namespace });
    let review = json!({ "metadata": {}, "spec": { "user": user, "resourceAttributes": what } });
    let reviews: Api<SubjectAccessReview> = Api::all(plane.client().await);
    let answer = reviews.create(&PostParams::default(), &serde_json::from_value(review)?).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Has every controller do all that it does.
async fn all_work_is_done(world: &World) -> Result<()> {
    let owned = async |owner: &str| {
        let mut pods = world.list::<Pod>().await?;
        pods.retain(|pod| pod.owner_references().iter().any(|reference| reference.name == owner));
        anyhow::Ok(pods)
    };
    let has = async |owner: &str, count: usize| {
        let what = format!("{owner} has {count} pods");
        eventually_within(PATIENCE, &what, || owned(owner), |pods| pods.len() == count).await
    };
    world.create(&fixtures::pod("orphan")).await?;
    world.create(&ReplicaSet::new("set", 3)).await?;
    let pods = has("set", 3).await?;
    ensure!(pods.iter().any(|pod| pod.name_any() == "orphan"), "it was adopted");
    world.create(&ReplicationController::new("controller", 2)).await?;
    let pods = has("controller", 2).await?;
    let strangers = json!({ "metadata": { "labels": { "foo": "strange" } } });
    let released = pods.first().context("it has pods")?.name_any();
    world.merge::<Pod>(&released, strangers).await?;
    let look = || world.get::<Pod>(&released);
    eventually("it is let go", look, |pod| pod.owner_references().is_empty()).await?;
    has("controller", 2).await?;
    world.update::<ReplicaSet>("set", |set| set.set_desired(1)).await?;
    has("set", 1).await?;
    let look = || world.get::<ReplicaSet>("set");
    eventually("the status tells", look, |set| set.counts().replicas == 1).await?;
    world.create(&fixtures::service("service", &[80])).await?;
    eventually("it has Endpoints", || world.find::<Endpoints>("service"), Option::is_some).await?;
    world.delete::<Service>("service").await?;
    eventually("no Endpoints are left", || world.find::<Endpoints>("service"), Option::is_none).await?;
    let told =
        |events: &Vec<Event>| events.iter().any(|event| event.reason.as_deref() == Some("SuccessfulDelete"));
    eventually("events tell of it", || world.list::<Event>(), told).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_roles_made_of_what_it_declares_a_process_is_refused_nothing_in_any_way_to_run() -> Result<()> {
    let options = PlaneOptions::default().nodes(0).scheduler(false);
    let options = options
        .api_server_arg("--feature-gates=CoordinatedLeaderElection=true")
        .api_server_arg("--runtime-config=coordination.k8s.io/v1beta1=true");
    on_plane(options, async |plane, audit| {
        for way in WAYS {
            way.grant(plane).await.with_context(|| format!("granting {}", way.name))?;
            way.run(plane, audit).await.with_context(|| format!("running {}", way.name))?;
        }
        Ok(())
    })
    .await
}
