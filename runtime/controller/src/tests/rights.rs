//! Controllers with missing permissions.

use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::DeleteParams;
use kube::core::Status;
use windlass_api_server::{ApiServer, ApiServerOptions};
use windlass_client::Identities;
use windlass_workqueue::Priority;

use super::*;

/// Returns the error of a server that denies a write.
fn forbidden() -> kube::Error {
    let message = r#"pods is forbidden: User "system:serviceaccount:kube-system:scripted" cannot create resource "pods" in API group "" in the namespace "shop""#;
    let mut status = Status::failure(message, "Forbidden");
    status.code = 403;
    kube::Error::Api(Box::new(status))
}

#[derive(Debug, thiserror::Error)]
#[error("unable to create pods")]
struct Wrapped(#[source] kube::Error);

/// A controller whose key `needy` requires a permission that exists while `granted` is true.
fn needy(world: &World, granted: &Arc<AtomicBool>) -> Registration {
    let granted = Arc::clone(granted);
    let wire = |setup: &mut Setup| {
        setup.max_retries(Some(3));
        setup.primary::<ConfigMap>();
    };
    world.scripted(wire, move |key, _| {
        let allowed = key.name() != "needy" || granted.load(Ordering::Relaxed);
        async move { if allowed { Ok(Outcome::Done) } else { Err(retry(Wrapped(forbidden()))) } }
    })
}

// parity: role-lacks-rule-error
#[tokio::test(start_paused = true)]
async fn forbidden_write_is_retried_within_half_a_minute() {
    let (world, granted) = (World::with(&["needy", "modest"]), Arc::new(AtomicBool::new(false)));
    let _workers = world.start_with(needy(&world, &granted)).await;
    world.pass(3600).await;
    let times = world.diary.times("needy");
    let gaps = gaps(&times);
    assert!(gaps.iter().all(|gap| *gap <= Duration::from_secs(30)), "{gaps:?}");
    assert!(times.len() <= 3600 / 30 + 15, "and it backs off before: {}", times.len());
    assert_eq!(world.diary.times("modest").len(), 1, "keys without the permission error are not affected");

    granted.store(true, Ordering::Relaxed);
    world.pass(31).await;
    let reconciled = world.diary.times("needy").len();
    assert_eq!(reconciled, times.len() + 1, "succeeds at the first attempt after the rule is restored");
    world.pass(3600).await;
    assert_eq!(world.diary.times("needy").len(), reconciled);
}

#[test]
fn missing_rule_is_found_in_wrapped_errors() {
    for error in [
        ReconcileError::from(forbidden()),
        retry(Wrapped(forbidden())),
        retry(format!("[{}, something else]", Wrapped(forbidden()).0)),
        terminal(forbidden()),
    ] {
        let missing = error.denial().map(|denial| denial.to_string());
        let expected = "system:serviceaccount:kube-system:scripted cannot create pods in namespace shop; add to a role \
                        there, or to a cluster role: - { apiGroups: [\"\"], resources: [\"pods\"], verbs: [create] }";
        assert_eq!(missing.as_deref(), Some(expected), "{error:?}");
    }
    assert_eq!(retry("another failure").denial(), None);
}

/// Writes as a controller with its own ServiceAccount, while the account is deleted and its tokens expire. Returns the
/// users of the writes and the UIDs of the ServiceAccounts.
async fn under_an_account() -> (Vec<String>, Vec<Option<String>>) {
    let env = Env::virtual_time(3);
    let server = ApiServer::new(&env, ApiServerOptions::default());
    let options = ClientOptions { identities: Identities::service_accounts(), ..ClientOptions::default() };
    let (uri, metrics, fence) = (http::Uri::from_static("http://api"), Metrics::new(), Arc::new(OpenFence));
    let clients = Clients::from_service(
        env.with_incarnation("manager", 0),
        server.clone(),
        uri,
        options,
        &metrics,
        fence,
    );
    let client = clients.expect("clients").for_controller("scripted").expect("a client").client();
    let maps = Api::<ConfigMap>::namespaced(client, "default");
    let admin = kube::Client::new(server.as_user("admin"), "default");
    let accounts = Api::<ServiceAccount>::namespaced(admin, "kube-system");
    let mut uids = Vec::new();
    for (name, wait) in [("a", 60), ("b", 2 * 3600), ("c", 0)] {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.into());
        maps.create(&PostParams::default(), &map).await.expect("written");
        uids.push(accounts.get("scripted").await.expect("there").metadata.uid);
        env.sleep(Duration::from_secs(wait)).await;
        if name == "a" {
            accounts.delete("scripted", &DeleteParams::default()).await.expect("gone");
        }
    }
    let wrote = server.recorded_accesses().into_iter().filter(|used| used.resource == "configmaps");
    (wrote.map(|used| used.user.clone()).collect(), uids)
}

#[tokio::test(start_paused = true)]
async fn simulated_server_issues_service_account_tokens_repeatably() {
    let (wrote, uids) = under_an_account().await;
    assert_eq!(wrote, ["system:serviceaccount:kube-system:scripted"]);
    assert!(uids[0] != uids[1] && uids[1] == uids[2], "recreated once: {uids:?}");
    assert_eq!(under_an_account().await, (wrote, uids));
}

#[tokio::test(start_paused = true)]
async fn forbidden_keys_do_not_delay_the_retry_of_another_key() {
    let (world, failed) = (World::with(&["other"]), Arc::new(AtomicBool::new(false)));
    let wire = |setup: &mut Setup| {
        setup.primary::<ConfigMap>();
        let forbidden = (0..600).map(|number| ObjectKey::namespaced("shop", &format!("forbidden-{number}")));
        setup.queue().add_all(forbidden, Priority::NORMAL);
    };
    let fails = Arc::clone(&failed);
    let act = move |key: ObjectKey, _| {
        let fails = key.name() == "other" && fails.swap(false, Ordering::Relaxed);
        async move {
            match key.name() {
                "other" if fails => Err(retry("once")),
                "other" => Ok(Outcome::Done),
                _ => Err(retry(forbidden())),
            }
        }
    };
    let _workers = world.start_with(world.scripted(wire, act)).await;
    world.pass(600).await;
    failed.store(true, Ordering::Relaxed);
    world.put("other");
    world.pass(1).await;
    let gap = gaps(&world.diary.times("other")).pop();
    assert_eq!(gap, Some(Duration::from_millis(5)), "only its own backoff");
}
