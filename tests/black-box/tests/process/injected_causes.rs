//! Injects unhealthy states one by one, and checks the cause that `windlass explain` and `/debug/explain` report.
//!
//! The tests use the shipped controllers where possible. Their kinds are built in and thus always served and valid, so
//! missing, undecodable and paused objects are tested with an operator from `examples/`.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use windlass_black_box::control_plane::with_control_plane;
use windlass_black_box::fixtures::LABEL;
use windlass_black_box::implementation::ready;
use windlass_black_box::test_namespace::TestNamespace;
use windlass_black_box::wait::eventually;
use windlass_black_box::workload::Workload as _;
use windlass_harness::{ControlPlane, ControlPlaneOptions, ManagerProcess};

use super::explain::{first_lines, wait_for_explanation};

const TIMEOUT: Duration = Duration::from_secs(60);

fn plane() -> ControlPlaneOptions {
    ControlPlaneOptions::default().nodes(0).scheduler(false)
}

async fn namespace(plane: &ControlPlane) -> Result<TestNamespace> {
    Ok(TestNamespace { client: plane.client().await, namespace: plane.namespace("planted").await? })
}

// parity: nothing-why-object-not
#[tokio::test]
async fn explain_names_holder_of_key_in_another_shard() -> Result<()> {
    const REPLICA: [&str; 4] = [
        "--shards=2",
        "--leader-elect-lease-duration=5s",
        "--leader-elect-renew-deadline=4s",
        "--leader-elect-retry-period=1s",
    ];
    with_control_plane(plane(), async |plane, _| {
        let namespace = namespace(plane).await?;
        let replicas =
            [ManagerProcess::start(plane, &REPLICA).await?, ManagerProcess::start(plane, &REPLICA).await?];
        for replica in &replicas {
            ready(replica, TIMEOUT).await?;
        }
        namespace.create(&ReplicaSet::new("web", 1)).await?;
        let key = format!("{}/web", namespace.namespace);
        let ask = async || {
            let [one, two] = &replicas;
            let [one, two] = [one, two].map(|replica| first_lines(replica, "replicaset", &key));
            Ok([one.await?, two.await?])
        };
        let all = |lines: &[String; 2], words: &str| lines.iter().all(|line| line.starts_with(words));
        let shared = |answers: &[[String; 2]; 2]| {
            let has = |words: &str| answers.iter().filter(|lines| all(lines, words)).count();
            // The other replica can read the shard's Lease later than the holder writes it.
            let names_holder = answers.iter().flatten().any(|line| line.contains("query that replica"));
            has("done: ") == 1 && has("other shard: shard ") == 1 && names_holder
        };
        let answers = eventually("one replica has the key, and the other names it", ask, shared).await?;
        let words = "other shard: shard ";
        let line = answers.iter().flatten().find(|line| line.starts_with(words)).context("just seen")?;
        let shard = line.strip_prefix(words).and_then(|rest| rest.split(' ').next()).context("a number")?;
        let leases: Api<Lease> = Api::namespaced(namespace.client.clone(), "kube-system");
        let lease = leases.get(&format!("windlass-shard-{shard}")).await?;
        let holder = lease.spec.and_then(|spec| spec.holder_identity).context("the shard is held")?;
        ensure!(line.contains(&format!("is held by {holder}; query that replica")), "{line}: {holder}");
        Ok(())
    })
    .await
}

// parity: nothing-why-object-not
#[tokio::test]
async fn explain_reports_saturated_queue_when_worker_is_busy() -> Result<()> {
    with_control_plane(plane(), async |plane, _| {
        let namespace = namespace(plane).await?;
        // One request every five seconds and one worker: a ReplicaSet with 20 pods occupies the worker for long.
        let slow = ["--kube-api-qps=0.2", "--kube-api-burst=1", "--concurrent-replicaset-syncs=1"];
        let manager = ManagerProcess::start(plane, &[&["--leader-elect=false"], &slow[..]].concat()).await?;
        ready(&manager, TIMEOUT).await?;
        namespace.create(&ReplicaSet::new("busy", 20)).await?;
        eventually("a worker is at it", || namespace.pods(LABEL), |pods| !pods.is_empty()).await?;
        namespace.create(&ReplicaSet::new("web", 1)).await?;
        let key = format!("{}/web", namespace.namespace);
        let expected = "queue saturated: queued for ";
        wait_for_explanation(&manager, "replicaset", &key, expected).await?;
        let busy = format!("{}/busy", namespace.namespace);
        wait_for_explanation(&manager, "replicaset", &busy, "running: a worker has reconciled it for ")
            .await?;
        Ok(())
    })
    .await
}

/// Returns the operator's CRD with these versions; the first is the storage version. Its schema accepts any content.
fn definition(versions: &[&str], conversion: &Value) -> Result<CustomResourceDefinition> {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let version = |(number, name): (usize, &&str)| {
        json!({
            "name": name, "served": true, "storage": number == 0, "subresources": { "status": {} },
            "schema": { "openAPIV3Schema": schema },
        })
    };
    let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
    Ok(serde_json::from_value(json!({
        "metadata": { "name": "sites.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": versions, "conversion": conversion,
            "names": { "plural": "sites", "singular": "site", "kind": "Site", "listKind": "SiteList" },
        },
    }))?)
}

/// The installed CRD, which tests change.
struct Kind {
    definitions: Api<CustomResourceDefinition>,
}

impl Kind {
    async fn install(client: &Client, versions: &[&str]) -> Result<Self> {
        let definitions = Api::all(client.clone());
        let definition = definition(versions, &json!({ "strategy": "None" }))?;
        definitions.create(&PostParams::default(), &definition).await.context("installing the kind")?;
        Ok(Self { definitions })
    }

    async fn change(&self, versions: &[&str], conversion: &Value) -> Result<()> {
        let mut wanted = serde_json::to_value(definition(versions, conversion)?.spec)?;
        // Nulls of the merge patch remove fields.
        wanted["conversion"] = conversion.clone();
        let patch = Patch::Merge(json!({ "spec": wanted }));
        self.definitions.patch("sites.example.com", &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

fn sites(namespace: &TestNamespace, version: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "example.com".to_owned(),
        version: version.to_owned(),
        api_version: format!("example.com/{version}"),
        kind: "Site".to_owned(),
        plural: "sites".to_owned(),
    };
    Api::namespaced_with(namespace.client.clone(), &namespace.namespace, &resource)
}

/// Creates a Site with any JSON value as `replicas`.
async fn create(namespace: &TestNamespace, version: &str, name: &str, replicas: Value) -> Result<()> {
    let site: DynamicObject = serde_json::from_value(json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Site", "metadata": { "name": name },
        "spec": { "image": "example/site:1", "replicas": replicas },
    }))?;
    let made = async || {
        match sites(namespace, version).create(&PostParams::default(), &site).await {
            Ok(_) => Ok(true),
            // A new CRD is not served immediately.
            Err(kube::Error::Api(refusal)) if refusal.code == 404 => Ok(false),
            Err(error) => Err(error).with_context(|| format!("creating {name}")),
        }
    };
    eventually("the kind is served", made, |made| *made).await?;
    Ok(())
}

/// Starts the operator and waits until its admin server responds. It might never become ready.
async fn operator_on(plane: &ControlPlane) -> Result<ManagerProcess> {
    let operator = ManagerProcess::start_example(plane, "sites", &[])?;
    let listens = async || Ok(matches!(operator.get("/livez").await, Ok((200, _))));
    eventually("the operator listens", listens, |listens| *listens).await?;
    Ok(operator)
}

// parity: nothing-why-object-not
#[tokio::test]
async fn explain_reports_missing_unlisted_undecodable_and_paused_kinds() -> Result<()> {
    with_control_plane(plane(), async |plane, _| {
        let namespace = namespace(plane).await?;
        let operator = operator_on(plane).await?;
        let (web, odd) = (format!("{}/web", namespace.namespace), format!("{}/odd", namespace.namespace));
        let absent = "kind absent: the API server does not serve sites.v1.example.com; install the CRD";
        wait_for_explanation(&operator, "site-keeper", &web, absent).await?;

        // The stored version is not converted to the version that the operator reads.
        let kind = Kind::install(&namespace.client, &["v1alpha1"]).await?;
        create(&namespace, "v1alpha1", "web", json!(1)).await?;
        create(&namespace, "v1alpha1", "odd", json!("a few")).await?;
        wait_for_explanation(&operator, "site-keeper", &web, absent).await?;
        let no_strategy = json!({
            "strategy": "Webhook",
            "webhook": {
                "conversionReviewVersions": ["v1"], "clientConfig": { "url": "https://127.0.0.1:1/convert" },
            },
        });
        kind.change(&["v1alpha1", "v1"], &no_strategy).await?;
        operator.terminate();
        operator.wait_exit(TIMEOUT).await?;
        let operator = operator_on(plane).await?;
        let waiting = "waiting for cache: sites.v1.example.com (all): ";
        wait_for_explanation(&operator, "site-keeper", &web, waiting).await?;

        kind.change(&["v1alpha1", "v1"], &json!({ "strategy": "None", "webhook": null })).await?;
        wait_for_explanation(&operator, "site-keeper", &web, "done: nothing to do until something changes")
            .await?;
        let line = wait_for_explanation(
            &operator,
            "site-keeper",
            &odd,
            "undecodable object: sites.v1.example.com at version ",
        );
        let line = line.await?;
        ensure!(line.contains("expected i32") && !line.contains("a few"), "{line}");

        let pause = |value: Value| {
            Patch::Merge(json!({ "metadata": { "annotations": { "example.com/paused": value } } }))
        };
        let (sites, params) = (sites(&namespace, "v1"), PatchParams::default());
        sites.patch("web", &params, &pause(json!("by hand"))).await?;
        let paused = "paused: its object has the annotation example.com/paused";
        wait_for_explanation(&operator, "site-keeper", &web, paused).await?;
        sites.patch("web", &params, &pause(Value::Null)).await?;
        wait_for_explanation(&operator, "site-keeper", &web, "done: ").await?;
        Ok(())
    })
    .await
}
