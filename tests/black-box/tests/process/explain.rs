//! `windlass explain`: the reason why an object was not reconciled.

#![expect(clippy::print_stdout, reason = "the output of explain is part of the result")]

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use windlass_black_box::{
    control_plane::with_control_plane, fixtures::LABEL, implementation::ready, test_namespace::TestNamespace,
    wait::eventually, wait::eventually_within, workload::Workload as _,
};
use windlass_harness::{ControlPlane, ControlPlaneOptions, ManagerProcess};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A user that can read everything and cannot write the objects of controllers.
const READER: &str = "system:kube-controller-manager";

/// Runs `windlass explain` for the object `key` of `manager`, and returns exit code, stdout and stderr.
async fn ask(
    manager: &ManagerProcess,
    controller: &str,
    key: &str,
    more: &[&str],
) -> Result<(Option<i32>, String, String)> {
    let server = format!("--server=http://{}", manager.admin_address());
    let output = ManagerProcess::command(&[&["explain", controller, key, &server], more].concat()).await?;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).context("not text");
    Ok((output.status.code(), text(output.stdout)?, text(output.stderr)?))
}

/// Returns the first lines of the output of the command and of the endpoint.
pub(crate) async fn first_lines(
    manager: &ManagerProcess,
    controller: &str,
    key: &str,
) -> Result<[String; 2]> {
    let (code, answer, complaint) = ask(manager, controller, key, &[]).await?;
    ensure!(code == Some(0), "{complaint}");
    let (status, page) = manager.get(&format!("/debug/explain?controller={controller}&key={key}")).await?;
    ensure!(status == 200, "{status}: {page}");
    Ok([answer, page].map(|text| text.lines().next().unwrap_or_default().to_owned()))
}

/// Waits until the first line starts with this text, in the command and at the endpoint.
pub(crate) async fn wait_for_explanation(
    manager: &ManagerProcess,
    controller: &str,
    key: &str,
    expected: &str,
) -> Result<String> {
    let look = async || first_lines(manager, controller, key).await;
    let begin = |lines: &[String; 2]| lines.iter().all(|line| line.starts_with(expected));
    // An informer with repeated failures waits 30 s between two attempts.
    let what = format!("explain says {expected:?}");
    let [line, _] = eventually_within(2 * TIMEOUT, &what, look, begin).await?;
    println!("{line}");
    Ok(line)
}

/// Waits for a first line for the ReplicaSet `web`.
async fn wait_for_cause(
    manager: &ManagerProcess,
    namespace: &TestNamespace,
    expected: &str,
) -> Result<String> {
    wait_for_explanation(manager, "replicaset", &format!("{}/web", namespace.namespace), expected).await
}

/// Returns the output as JSON.
async fn json_of(manager: &ManagerProcess, namespace: &TestNamespace) -> Result<Value> {
    let (code, answer, complaint) =
        ask(manager, "replicaset-controller", &format!("{}/web", namespace.namespace), &["-o", "json"])
            .await?;
    ensure!(code == Some(0), "{complaint}");
    Ok(serde_json::from_str(&answer)?)
}

fn plane() -> ControlPlaneOptions {
    ControlPlaneOptions::default().nodes(0).scheduler(false)
}

// parity: nothing-why-object-not
#[tokio::test]
async fn explain_command_prints_done_backing_off_and_lease_elsewhere() -> Result<()> {
    with_control_plane(plane(), async |plane, _| {
        let namespace =
            TestNamespace { client: plane.client().await, namespace: plane.namespace("explain").await? };
        let leader = ManagerProcess::start(plane, &[]).await?;
        ready(&leader, TIMEOUT).await?;
        namespace.create(&ReplicaSet::new("web", 1)).await?;
        eventually("a pod was made", || namespace.pods(LABEL), |pods| pods.len() == 1).await?;
        wait_for_cause(&leader, &namespace, "done: nothing to do until something changes").await?;
        let output_text = json_of(&leader, &namespace).await?;
        let stored = namespace.get::<ReplicaSet>("web").await?;
        ensure!(output_text["cached"][0]["uid"].as_str() == stored.metadata.uid.as_deref(), "{output_text}");
        ensure!(
            output_text["situation"]["name"] == "done" && output_text["lastRun"]["outcome"] == "done",
            "{output_text}"
        );

        namespace
            .update::<ReplicaSet>("web", |set| {
                let spec = set.template_mut().spec.get_or_insert_default();
                spec.priority_class_name = Some("no-such-class".to_owned());
                set.set_desired(2);
            })
            .await?;
        let line = wait_for_cause(&leader, &namespace, "backing off: failed ").await?;
        ensure!(line.contains("no-such-class") && line.contains("next attempt"), "{line}");
        // While the key is queued or running there is no next attempt.
        let answers = || json_of(&leader, &namespace);
        eventually("a next try has a time", answers, |output_text| output_text["nextTry"]["at"].is_string())
            .await?;

        let standby = ManagerProcess::start(plane, &[]).await?;
        ready(&standby, TIMEOUT).await?;
        let leases: Api<Lease> = Api::namespaced(namespace.client.clone(), "kube-system");
        let lease = leases.get("windlass").await?;
        let holder = lease.spec.and_then(|spec| spec.holder_identity).context("the lease is held")?;
        let line =
            wait_for_cause(&standby, &namespace, "lease elsewhere: kube-system/windlass is held by ").await?;
        ensure!(line.contains(&holder), "{line} does not name {holder}");
        Ok(())
    })
    .await
}

// parity: nothing-why-object-not
#[tokio::test]
async fn explain_command_prints_missing_rule_and_remedies_for_bad_arguments() -> Result<()> {
    with_control_plane(plane(), async |plane, _| {
        let namespace =
            TestNamespace { client: plane.client().await, namespace: plane.namespace("explain").await? };
        let kubeconfig = plane.kubeconfig_for("reader", READER, None)?;
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let manager = ManagerProcess::start(plane, &[&kubeconfig, "--leader-elect=false"]).await?;
        ready(&manager, TIMEOUT).await?;
        namespace.create(&ReplicaSet::new("web", 1)).await?;
        let expected = format!("missing permission: {READER} cannot ");
        let line = wait_for_cause(&manager, &namespace, &expected).await?;
        ensure!(line.contains("apiGroups:") && line.contains("verbs: ["), "{line}");

        let table = [
            (manager.admin_address(), "replicasets", "did you mean \"replicaset-controller\"?"),
            ("127.0.0.1:1".to_owned(), "replicaset", "kubectl -n kube-system port-forward"),
        ];
        for (address, controller, words) in table {
            let server = format!("--server=http://{address}");
            let output = ManagerProcess::command(&["explain", controller, "shop/web", &server]).await?;
            let complaint = String::from_utf8(output.stderr)?;
            ensure!(output.status.code() == Some(1) && complaint.contains(words), "{complaint}");
            ensure!(complaint.lines().count() == 1 && output.stdout.is_empty(), "{complaint}");
        }
        Ok(())
    })
    .await
}

/// Writes the token of a new ServiceAccount to a file.
async fn token_file(plane: &ControlPlane, name: &str, folder: &Path) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client().await, "default");
    let account = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
    accounts.create(&PostParams::default(), &account).await?;
    let granted =
        accounts.create_token_request(name, &PostParams::default(), &TokenRequest::default()).await?;
    let token = granted.status.and_then(|status| status.token).context("a token")?;
    let file = folder.join(name);
    std::fs::write(&file, token)?;
    Ok(format!("--token-file={}", file.display()))
}

/// Allows a ServiceAccount of the default namespace to read the explain endpoints.
async fn grant(plane: &ControlPlane, name: &str) -> Result<()> {
    let client = plane.client().await;
    let role = json!({
        "metadata": { "name": name }, "rules": [{ "nonResourceURLs": ["/debug/*"], "verbs": ["get"] }],
    });
    let binding = json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": "default" }],
    });
    let (roles, bindings) = (Api::<ClusterRole>::all(client.clone()), Api::<ClusterRoleBinding>::all(client));
    roles.create(&PostParams::default(), &serde_json::from_value(role)?).await?;
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    Ok(())
}

#[tokio::test]
async fn explain_command_over_tls_needs_token_with_permission() -> Result<()> {
    with_control_plane(plane(), async |plane, _| {
        let folder = tempfile::tempdir()?;
        let manager =
            ManagerProcess::start(plane, &["--bind-address=127.0.0.1", "--leader-elect=false"]).await?;
        let reader = token_file(plane, "reader", folder.path()).await?;
        let foreign = token_file(plane, "stranger", folder.path()).await?;
        grant(plane, "reader").await?;
        let (https, http) = (manager.admin_address(), manager.admin_address());
        let (https, http) = (format!("--server=https://{https}"), format!("--server=http://{http}"));
        let skip = "--insecure-skip-tls-verify";
        let ask = async |more: &[&str]| -> Result<(Option<i32>, String)> {
            let output =
                ManagerProcess::command(&[&["explain", "replicaset", "shop/web"], more].concat()).await?;
            let output_text = [output.stdout, output.stderr].concat();
            Ok((output.status.code(), String::from_utf8(output_text)?))
        };
        let answered = async || ask(&[&https, skip, &reader]).await;
        // The permission takes effect after a while, and the controller starts after the admin server.
        let expected = "never seen: no cache of this controller";
        eventually("the reader is answered", answered, |(code, output)| {
            *code == Some(0) && output.starts_with(expected)
        })
        .await?;
        let table: [(&[&str], &str); 4] = [
            (&[&https, &reader], "--certificate-authority"),
            (&[&https, skip], "(401): the token is missing or unknown"),
            (&[&https, skip, &foreign], "nonResourceURLs: [\"/debug/*\"]"),
            (&[&http, &reader], "no token is sent"),
        ];
        for (words, expected) in table {
            let (code, output_text) = ask(words).await?;
            println!("{}", output_text.trim());
            ensure!(
                code == Some(1) && output_text.contains(expected) && output_text.lines().count() == 1,
                "{words:?}: {output_text}"
            );
        }
        Ok(())
    })
    .await
}
