//! Runs the behaviors on both servers. `cargo test -p windlass-contract ours::` needs only Rust.

use std::sync::Arc;

use futures_util::FutureExt as _;
use kube::Client;
use tokio::sync::OnceCell;
use windlass_api_server::{
    ApiServer, ApiServerOptions, WebhookHandler,
    storage::{InMemoryStorage, MemoryOptions, Storage},
};
use windlass_contract::{
    Behavior, Difference, TestServer,
    behaviors::{self, SERVICE_ACCOUNTS, SHARDS},
    control_plane,
    differences::DIFFERENCES,
    is_behavior, run, violations,
    webhooks::Webhooks,
};
use windlass_env::Env;
use windlass_harness::ControlPlane;

/// Minimum number of behaviors.
const ENOUGH: usize = 250;

/// Number of concurrent behaviors of one group on the real server: enough to hide the waiting, few enough for two
/// cores. The in-process server runs them sequentially, which is deterministic, and waiting is free there.
const AT_ONCE: usize = 12;

/// Defines one test per group and server, so that a filter can select either.
macro_rules! on_both_servers {
    ($($group:ident),* $(,)?) => {
        const GROUPS: &[&str] = &[$(stringify!($group)),*];

        mod real {
            $(#[tokio::test]
            async fn $group() {
                super::real(stringify!($group)).await;
            })*
        }

        mod ours {
            $(#[tokio::test(start_paused = true)]
            async fn $group() {
                super::ours(stringify!($group)).await;
            })*
        }
    };
}

on_both_servers!(
    apply,
    cluster,
    collections,
    create,
    defaults,
    definitions,
    delete,
    discovery,
    dry_run,
    formats,
    history,
    kinds,
    list,
    namespaces,
    patches,
    pods,
    read,
    rejections,
    rules,
    selectors,
    service_accounts,
    shards,
    subresources,
    tables,
    update,
    validation,
    validation_rules,
    watch,
    webhooks,
    widgets
);

fn table(name: &str) -> &'static [Behavior] {
    let (_, table) = behaviors::ALL.iter().find(|(group, _)| *group == name).expect("a group of that name");
    table
}

async fn real(group: &str) {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    static WITH_SHARDS: OnceCell<ControlPlane> = OnceCell::const_new();
    static WITH_ACCOUNTS: OnceCell<ControlPlane> = OnceCell::const_new();
    let start = || async { control_plane::start().await.inspect(ControlPlane::keep_logs_on_panic) };
    let with_shards =
        || async { control_plane::start_with_shards().await.inspect(ControlPlane::keep_logs_on_panic) };
    let with_accounts = || async {
        control_plane::start_with_service_accounts().await.inspect(ControlPlane::keep_logs_on_panic)
    };
    let control_plane = match group {
        SERVICE_ACCOUNTS => WITH_ACCOUNTS.get_or_try_init(with_accounts).await,
        SHARDS => WITH_SHARDS.get_or_try_init(with_shards).await,
        _ => PLANE.get_or_try_init(start).await,
    };
    let control_plane = control_plane.expect("a control plane");
    // A client is bound to the runtime that created it, and every test has its own runtime.
    let (webhooks, _listener) = Webhooks::listen().await.expect("webhooks listen");
    let server = TestServer::new(control_plane.client().await).with_webhooks(webhooks);
    let violations = violations(group, &run(&server, table(group), AT_ONCE).await, &[]);
    assert!(violations.is_empty(), "kube-apiserver\n{}", violations.join("\n\n"));
}

/// Runs a group on its own server with a virtual clock, where waiting is free.
async fn ours(group: &str) {
    let storage = Arc::new(InMemoryStorage::new(MemoryOptions::default()));
    let options = ApiServerOptions {
        storage: Some(Arc::clone(&storage) as Arc<dyn Storage>),
        sharded_list_and_watch: group == SHARDS,
        service_account_admission: group == SERVICE_ACCOUNTS,
        ..ApiServerOptions::default()
    };
    let api_server = ApiServer::new(&Env::virtual_time(1), options);
    let webhooks = Webhooks::at("https://127.0.0.1:9443");
    api_server.serve_webhooks("127.0.0.1:9443", Some(handler(webhooks.clone())));
    let compact = move || storage.compact(storage.revision());
    let server = TestServer::new(Client::new(api_server, "default")).with_compaction(compact);
    let server = server.with_webhooks(webhooks);
    let violations = violations(group, &run(&server, table(group), 1).await, DIFFERENCES);
    assert!(violations.is_empty(), "the in-process server\n{}", violations.join("\n\n"));
}

/// Connects webhooks without a socket.
fn handler(webhooks: Webhooks) -> WebhookHandler {
    Arc::new(move |request| {
        let webhooks = webhooks.clone();
        async move { Ok(webhooks.respond(request.uri().path(), request.body()).await) }.boxed()
    })
}

// parity: fake-client, fake-differs-real-server
#[test]
fn suite_has_enough_behaviors() {
    let count: usize = behaviors::ALL.iter().map(|(_, table)| table.len()).sum();
    assert!(count >= ENOUGH, "{count} behaviors");
}

#[test]
fn behavior_names_are_unique_in_a_group() {
    for (group, table) in behaviors::ALL {
        let mut names: Vec<&str> = table.iter().map(|behavior| behavior.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), table.len(), "{group}");
    }
}

// parity: fake-client, fake-differs-real-server
#[test]
fn every_group_has_tests() {
    let groups: Vec<&str> = behaviors::ALL.iter().map(|(group, _)| *group).collect();
    assert_eq!(groups, GROUPS);
}

// parity: fake-client, fake-differs-real-server
#[test]
fn every_difference_names_an_existing_behavior() {
    for Difference { behavior, failure, reason } in DIFFERENCES {
        assert!(is_behavior(behavior), "{behavior} is listed as a difference, but is not a behavior");
        assert!(!failure.is_empty() && !reason.is_empty(), "{behavior} has no failure text or no reason");
    }
}
