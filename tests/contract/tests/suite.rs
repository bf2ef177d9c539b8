//! The contract, on both servers: `cargo test -p windlass-contract ours::` needs nothing but Rust.

use std::sync::Arc;

use kube::Client;
use tokio::sync::OnceCell;
use windlass_api_server::{
    ApiServer, ApiServerOptions,
    storage::{InMemoryStorage, MemoryOptions, Storage},
};
use windlass_contract::{
    Behavior, Difference, TestServer,
    behaviours::{self, SHARDS},
    complaints,
    differences::DIFFERENCES,
    is_behaviour, plane, run,
};
use windlass_env::Env;
use windlass_harness::ControlPlane;

/// How many behaviors a contract that is worth the name has.
const ENOUGH: usize = 250;

/// How many behaviors of one group are under way at once on the real server: enough to hide waiting, few enough for
/// two cores. On ours waiting costs nothing, and one after the other is the same every time.
const AT_ONCE: usize = 12;

/// One test for each group and server, so that a filter chooses either.
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
    list,
    namespaces,
    patches,
    pods,
    read,
    refusals,
    rules,
    selectors,
    shards,
    subresources,
    tables,
    update,
    validation,
    watch,
    widgets
);

fn table(name: &str) -> &'static [Behavior] {
    let (_, table) = behaviours::ALL.iter().find(|(group, _)| *group == name).expect("a group of that name");
    table
}

async fn real(group: &str) {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    static WITH_SHARDS: OnceCell<ControlPlane> = OnceCell::const_new();
    let start = || async { plane::start().await.inspect(ControlPlane::keep_logs_on_panic) };
    let with_shards = || async { plane::start_with_shards().await.inspect(ControlPlane::keep_logs_on_panic) };
    let plane = match group {
        SHARDS => WITH_SHARDS.get_or_try_init(with_shards).await,
        _ => PLANE.get_or_try_init(start).await,
    };
    let plane = plane.expect("a plane");
    // A client lives on the runtime that made it, and every test has its own.
    let subject = TestServer::new(plane.client().await);
    let complaints = complaints(group, &run(&subject, table(group), AT_ONCE).await, &[]);
    assert!(complaints.is_empty(), "kube-apiserver\n{}", complaints.join("\n\n"));
}

/// Its own server for each group, on a clock that jumps: waiting costs nothing here.
async fn ours(group: &str) {
    let storage = Arc::new(InMemoryStorage::new(MemoryOptions::default()));
    let options = ApiServerOptions {
        storage: Some(Arc::clone(&storage) as Arc<dyn Storage>),
        sharded_list_and_watch: group == SHARDS,
        ..ApiServerOptions::default()
    };
    let server = ApiServer::new(&Env::virtual_time(1), options);
    let forget = move || storage.compact(storage.revision());
    let subject = TestServer::new(Client::new(server, "default")).forgetting_when_asked(forget);
    let complaints = complaints(group, &run(&subject, table(group), 1).await, DIFFERENCES);
    assert!(complaints.is_empty(), "the server in the process\n{}", complaints.join("\n\n"));
}

// parity: fake-client, fake-differs-real-server
#[test]
fn there_are_enough_behaviours() {
    let count: usize = behaviours::ALL.iter().map(|(_, table)| table.len()).sum();
    assert!(count >= ENOUGH, "{count} behaviours");
}

#[test]
fn no_two_behaviours_have_one_name_in_a_group() {
    for (group, table) in behaviours::ALL {
        let mut names: Vec<&str> = table.iter().map(|behaviour| behaviour.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), table.len(), "{group}");
    }
}

// parity: fake-client, fake-differs-real-server
#[test]
fn every_group_is_run() {
    let groups: Vec<&str> = behaviours::ALL.iter().map(|(group, _)| *group).collect();
    assert_eq!(groups, GROUPS);
}

// parity: fake-client, fake-differs-real-server
#[test]
fn every_difference_is_one_of_a_behaviour() {
    for Difference { behaviour, shows, reason } in DIFFERENCES {
        assert!(is_behaviour(behaviour), "{behaviour} is listed as a difference, and is no behaviour");
        assert!(!shows.is_empty() && !reason.is_empty(), "{behaviour} differs without a sign or a reason");
    }
}
