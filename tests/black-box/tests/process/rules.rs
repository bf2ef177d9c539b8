//! Removes each rule of each controller's role while the process runs. The affected controller waits and logs the rule,
//! other controllers continue, and the affected controller continues when the rule returns.

#![expect(clippy::print_stdout, reason = "how long a recovery took is part of the result")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Endpoints, Pod, ReplicationController, Service};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use windlass_black_box::fixtures;
use windlass_black_box::test_namespace::TestNamespace;
use windlass_black_box::wait::{eventually, eventually_within};
use windlass_black_box::workload::{Workload, create_stable, stable};
use windlass_harness::ControlPlane;

use crate::identities::{ACCOUNT, IdentityFixture, TIMEOUT, with_accounts};
use crate::rights::may;

/// A rule of one controller's role, and the work that requires it.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// The controller's ServiceAccount. Its role is `system:controller:<account>`.
    account: &'static str,
    verb: &'static str,
    group: &'static str,
    /// With its subresource.
    resource: &'static str,
    needy: Need,
}

/// Work of the controller that requires the rule. The variants describe the effect of the missing rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Pods are not created.
    MorePods,
    /// Pods are not deleted.
    FewerPods,
    /// A pod whose labels no longer match is not released.
    LetGo,
    /// An orphan is not adopted.
    Adoption,
    /// The status is not updated.
    Status,
    /// A Service has no Endpoints.
    NewEndpoints,
    /// Endpoints do not get the labels of their Service.
    OtherEndpoints,
    /// The controller's deletion is rejected. The API server itself deletes the Endpoints of a deleted Service.
    NoEndpoints,
}

const REPLICA_SETS: &str = "replicaset-controller";
const CONTROLLERS: &str = "replication-controller";
const ENDPOINTS: &str = "endpoint-controller";

const CASES: [Case; 13] = [
    case(REPLICA_SETS, "create", "", "pods", Need::MorePods),
    case(REPLICA_SETS, "delete", "", "pods", Need::FewerPods),
    case(REPLICA_SETS, "patch", "", "pods", Need::LetGo),
    case(REPLICA_SETS, "get", "apps", "replicasets", Need::Adoption),
    case(REPLICA_SETS, "update", "apps", "replicasets/status", Need::Status),
    case(CONTROLLERS, "create", "", "pods", Need::MorePods),
    case(CONTROLLERS, "delete", "", "pods", Need::FewerPods),
    case(CONTROLLERS, "patch", "", "pods", Need::LetGo),
    case(CONTROLLERS, "get", "", "replicationcontrollers", Need::Adoption),
    case(CONTROLLERS, "update", "", "replicationcontrollers/status", Need::Status),
    case(ENDPOINTS, "create", "", "endpoints", Need::NewEndpoints),
    case(ENDPOINTS, "update", "", "endpoints", Need::OtherEndpoints),
    case(ENDPOINTS, "delete", "", "endpoints", Need::NoEndpoints),
];

const fn case(
    account: &'static str,
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    needy: Need,
) -> Case {
    Case { account, verb, group, resource, needy }
}

/// The namespaces of a case: objects that need the rule, and objects that do not.
struct Place<'a> {
    scene: &'a IdentityFixture<'a>,
    case: Case,
    needy: TestNamespace,
    others: TestNamespace,
}

impl Case {
    fn user(&self) -> String {
        format!("{ACCOUNT}{}", self.account)
    }

    /// Returns the expected log text.
    fn line(&self, namespace: &str) -> String {
        let Self { verb, group, resource, .. } = self;
        let dot = if group.is_empty() { "" } else { "." };
        format!(
            "{} cannot {verb} {resource}{dot}{group} in namespace {namespace}; add to a Role in {namespace} or to a \
             ClusterRole: - {{ apiGroups: [\"{group}\"], resources: [\"{resource}\"], verbs: [{verb}] }}",
            self.user()
        )
    }

    fn role(&self) -> String {
        format!("system:controller:{}", self.account)
    }

    async fn is_allowed(&self, plane: &ControlPlane, namespace: &str) -> Result<bool> {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        let what = json!({ "verb": self.verb, "group": self.group, "resource": resource,
                           "subresource": subresource, "namespace": namespace });
        may(plane, &self.user(), what).await
    }

    /// Removes the rule, and returns the original role.
    async fn take(&self, plane: &ControlPlane, namespace: &str) -> Result<ClusterRole> {
        ensure!(self.is_allowed(plane, namespace).await?, "the rule does not exist");
        let roles: Api<ClusterRole> = Api::all(plane.client().await);
        let whole = roles.get(&self.role()).await?;
        let mut role = whole.clone();
        role.annotations_mut().insert("rbac.authorization.kubernetes.io/autoupdate".into(), "false".into());
        for rule in role.rules.iter_mut().flatten() {
            if rule.resources.iter().flatten().any(|resource| resource == self.resource) {
                rule.verbs.retain(|verb| verb != self.verb);
            }
        }
        // Rules without verbs are invalid.
        role.rules.iter_mut().for_each(|rules| rules.retain(|rule| !rule.verbs.is_empty()));
        roles.replace(&self.role(), &PostParams::default(), &role).await?;
        let look = || self.is_allowed(plane, namespace);
        eventually("the rule is removed", look, |allowed| !allowed).await?;
        Ok(whole)
    }

    async fn give_back(&self, plane: &ControlPlane, whole: &ClusterRole) -> Result<()> {
        let roles: Api<ClusterRole> = Api::all(plane.client().await);
        let mut role = roles.get(&self.role()).await?;
        role.rules.clone_from(&whole.rules);
        roles.replace(&self.role(), &PostParams::default(), &role).await?;
        Ok(())
    }

    /// Runs the case: removes the rule and restores it.
    async fn run(self, number: usize, scene: &IdentityFixture<'_>) -> Result<()> {
        let (client, plane) = (scene.namespace.client.clone(), scene.plane);
        let namespace = async |name: &str| {
            let namespace = plane.namespace(&format!("{name}-{number}")).await?;
            anyhow::Ok(TestNamespace { client: client.clone(), namespace })
        };
        let place =
            Place { scene, case: self, needy: namespace("needy").await?, others: namespace("others").await? };
        place.prepare().await.context("before")?;
        let taken = self.take(plane, &place.needy.namespace).await?;
        let outcome = place.without_it().await;
        let said = outcome.and(self.give_back(plane, &taken).await);
        said?;
        place.goes_on().await
    }
}

impl Place<'_> {
    async fn prepare(&self) -> Result<()> {
        match self.case.account {
            REPLICA_SETS => self.prepare_workloads::<ReplicaSet>().await,
            CONTROLLERS => self.prepare_workloads::<ReplicationController>().await,
            _ => {
                has_endpoints(&self.others, "modest").await?;
                if self.case.needy == Need::NewEndpoints {
                    return Ok(());
                }
                has_endpoints(&self.needy, "needy").await
            }
        }
    }

    async fn prepare_workloads<W: Workload>(&self) -> Result<()> {
        create_stable(&self.needy, &W::new("needy", 2)).await?;
        create_stable(&self.others, &W::new("modest", 2)).await?;
        Ok(())
    }

    /// Checks the state without the rule: only the affected controller waits, and logs the rule.
    async fn without_it(&self) -> Result<()> {
        let scene = self.scene;
        match self.case.account {
            REPLICA_SETS => self.ask_workload::<ReplicaSet>().await?,
            CONTROLLERS => self.ask_workload::<ReplicationController>().await?,
            _ => self.ask_endpoints().await?,
        }
        let reported = async || self.reported();
        eventually("the log names the missing rule", reported, |times| *times > 0).await?;
        // Other controllers do all of their work; this controller does the work that requires other rules.
        if self.case.account != REPLICA_SETS {
            all_is_done::<ReplicaSet>(&self.others).await?;
        }
        if self.case.account != CONTROLLERS {
            all_is_done::<ReplicationController>(&self.others).await?;
        }
        if self.case.account != ENDPOINTS {
            all_endpoints_are_done(&self.others).await?;
        }
        match self.case.account {
            REPLICA_SETS => self.modest_workload::<ReplicaSet>().await?,
            CONTROLLERS => self.modest_workload::<ReplicationController>().await?,
            _ => self.modest_endpoints().await?,
        }
        let (code, answer) = scene.manager.get("/livez").await?;
        ensure!(code == 200, "{answer}");
        ensure!(!self.is_done().await?, "the work must not be done without the rule");
        Ok(())
    }

    /// Checks that the same process does the work after the rule is restored.
    async fn goes_on(&self) -> Result<()> {
        let (began, manager) = (Instant::now(), &self.scene.manager);
        eventually_within(TIMEOUT, "the work is done", || self.is_done(), |done| *done).await?;
        println!("{:?} continued {:.1?} after the rule was restored", self.case, began.elapsed());
        ensure!(manager.exited().is_none(), "the process must not restart");
        let reported = self.reported()?;
        ensure!(reported <= 5, "the rule must be logged once a minute, not per attempt: {reported}");
        Ok(())
    }

    /// Counts the log lines that name the missing rule.
    fn reported(&self) -> Result<usize> {
        let line = self.case.line(&self.needy.namespace);
        Ok(self.scene.log()?.lines().filter(|said| said.replace('\\', "").contains(&line)).count())
    }

    async fn ask_workload<W: Workload>(&self) -> Result<()> {
        let namespace = &self.needy;
        let scale = async |count| namespace.update::<W>("needy", |it| it.set_desired(count)).await.map(drop);
        match self.case.needy {
            Need::MorePods | Need::Status => scale(4).await,
            Need::FewerPods => scale(1).await,
            Need::LetGo => {
                let pods = pods_of(namespace, "needy").await?;
                let pod = pods.first().context("it has pods")?.name_any();
                let labels = json!({ "metadata": { "labels": { "foo": "strange" } } });
                namespace.merge::<Pod>(&pod, labels).await.map(drop)
            }
            _ => namespace.create(&fixtures::pod("orphan")).await.map(drop),
        }
    }

    async fn ask_endpoints(&self) -> Result<()> {
        let namespace = &self.needy;
        match self.case.needy {
            Need::NewEndpoints => namespace.create(&fixtures::service("needy", &[80])).await.map(drop),
            Need::OtherEndpoints => {
                let labels = json!({ "metadata": { "labels": { "seen": "later" } } });
                namespace.merge::<Service>("needy", labels).await.map(drop)
            }
            _ => namespace.delete::<Service>("needy").await,
        }
    }

    /// Returns whether the work is done.
    async fn is_done(&self) -> Result<bool> {
        let namespace = &self.needy;
        let pods = namespace.list::<Pod>().await?;
        Ok(match self.case.needy {
            Need::MorePods => pods.len() == 4,
            Need::FewerPods => pods.len() == 1,
            Need::LetGo => pods.iter().any(|pod| pod.owner_references().is_empty()) && pods.len() == 3,
            // After the adoption there is one pod too many, and any pod can be deleted.
            Need::Adoption => pods.len() == 2 && pods.iter().all(|pod| !pod.owner_references().is_empty()),
            Need::Status => pods.len() == 4 && self.counted().await? == 4,
            Need::NewEndpoints => namespace.find::<Endpoints>("needy").await?.is_some(),
            Need::OtherEndpoints => namespace.get::<Endpoints>("needy").await?.labels().contains_key("seen"),
            Need::NoEndpoints => self.was_deleted()?,
        })
    }

    /// Returns `status.replicas` of the workload that needs the rule.
    async fn counted(&self) -> Result<i32> {
        Ok(match self.case.account {
            REPLICA_SETS => self.needy.get::<ReplicaSet>("needy").await?.counts().replicas,
            _ => self.needy.get::<ReplicationController>("needy").await?.counts().replicas,
        })
    }

    /// Returns whether the controller's deletion was accepted or came too late.
    fn was_deleted(&self) -> Result<bool> {
        let (user, namespace) = (self.case.user(), &self.needy.namespace);
        Ok(self.scene.audit.all_writes("windlass/")?.iter().any(|write| {
            let target = write.object_ref.clone().unwrap_or_default();
            let code = write.response_status.map_or(0, |answer| answer.code);
            write.verb == "delete"
                && write.resource() == "endpoints"
                && write.user.username == user
                && target.namespace == *namespace
                && matches!(code, 200 | 404)
        }))
    }

    /// Checks the work that the controller can do without the rule.
    async fn modest_workload<W: Workload>(&self) -> Result<()> {
        let count = if self.case.needy == Need::FewerPods { 3 } else { 1 };
        self.others.update::<W>("modest", |modest| modest.set_desired(count)).await?;
        let what = format!("modest has {count} pods");
        let expected = usize::try_from(count)?;
        eventually(&what, || pods_of(&self.others, "modest"), |pods| pods.len() == expected).await?;
        if self.case.needy != Need::Status {
            stable::<W>(&self.others, "modest").await?;
            return Ok(());
        }
        let look = || self.needy.list::<Pod>();
        eventually("the workload has its pods, even without a status", look, |pods| pods.len() == 4).await?;
        Ok(())
    }

    async fn modest_endpoints(&self) -> Result<()> {
        if self.case.needy != Need::NewEndpoints {
            return has_endpoints(&self.others, "new").await;
        }
        let labels = json!({ "metadata": { "labels": { "seen": "later" } } });
        self.others.merge::<Service>("modest", labels).await?;
        let look = || self.others.get::<Endpoints>("modest");
        eventually("they follow", look, |endpoints| endpoints.labels().contains_key("seen")).await?;
        Ok(())
    }
}

async fn pods_of(namespace: &TestNamespace, owner: &str) -> Result<Vec<Pod>> {
    let mut pods = namespace.list::<Pod>().await?;
    pods.retain(|pod| pod.owner_references().iter().any(|reference| reference.name == owner));
    Ok(pods)
}

/// Creates a Service and waits for its Endpoints.
async fn has_endpoints(namespace: &TestNamespace, service: &str) -> Result<()> {
    namespace.create(&fixtures::service(service, &[80])).await?;
    let look = || namespace.find::<Endpoints>(service);
    eventually(&format!("{service} has Endpoints"), look, Option::is_some).await?;
    Ok(())
}

/// Checks that pods are created, deleted and counted in the status.
async fn all_is_done<W: Workload>(namespace: &TestNamespace) -> Result<()> {
    let name = W::KIND.to_lowercase();
    create_stable(namespace, &W::new(&name, 2)).await?;
    namespace.update::<W>(&name, |workload| workload.set_desired(1)).await?;
    stable::<W>(namespace, &name).await?;
    eventually("one is deleted", || pods_of(namespace, &name), |pods| pods.len() == 1).await?;
    Ok(())
}

/// Checks that Endpoints are created, updated and deleted with their Service.
async fn all_endpoints_are_done(namespace: &TestNamespace) -> Result<()> {
    has_endpoints(namespace, "service").await?;
    let labels = json!({ "metadata": { "labels": { "seen": "later" } } });
    namespace.merge::<Service>("service", labels).await?;
    let look = || namespace.get::<Endpoints>("service");
    eventually("they follow", look, |endpoints| endpoints.labels().contains_key("seen")).await?;
    namespace.delete::<Service>("service").await?;
    eventually("the Endpoints are deleted", || namespace.find::<Endpoints>("service"), Option::is_none)
        .await?;
    Ok(())
}

// parity: role-lacks-rule-error
#[tokio::test]
async fn controller_without_rbac_rule_logs_it_and_continues_when_rule_returns() -> Result<()> {
    with_accounts(async |scene| {
        let pid = scene.manager.pid();
        for (number, case) in CASES.into_iter().enumerate() {
            case.run(number, &scene).await.with_context(|| format!("{case:?}"))?;
            ensure!(scene.manager.pid() == pid, "the process must not restart");
        }
        Ok(())
    })
    .await
}

/// A key that failed for a long time without the rule is still retried soon after the rule returns.
// parity: role-lacks-rule-error
#[tokio::test]
async fn controller_continues_within_a_minute_after_rbac_rule_returns() -> Result<()> {
    with_accounts(async |scene| {
        let [case, ..] = CASES;
        let namespace = TestNamespace {
            client: scene.namespace.client.clone(),
            namespace: scene.namespace.namespace.clone(),
        };
        let others = scene.plane.namespace("others").await?;
        let others = TestNamespace { client: scene.namespace.client.clone(), namespace: others };
        let place = Place { scene: &scene, case, needy: namespace, others };
        place.prepare().await?;
        let taken = case.take(scene.plane, &place.needy.namespace).await?;
        place.without_it().await?;
        // The backoff of the key has grown: with backoff alone, the next attempt could be far away.
        tokio::time::sleep(Duration::from_secs(20)).await;
        case.give_back(scene.plane, &taken).await?;
        place.goes_on().await
    })
    .await
}
