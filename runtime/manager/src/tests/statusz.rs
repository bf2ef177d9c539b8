//! Tests of the Leases and shards in `/statusz`: with an election, with shards, and without either.

use std::net::Ipv4Addr;
use std::num::NonZeroU16;

use windlass_admin::{AdminConfig, PageRequest, Pages};

use super::*;

/// A replica and its admin endpoints.
struct Shown {
    replica: Replica,
    pages: Pages,
}

impl World {
    /// Starts a replica of this configuration with an admin server.
    fn show(&self, config: ManagerConfig) -> Shown {
        let admin = AdminConfig::local((Ipv4Addr::LOCALHOST, 0).into());
        let env = self.env.with_incarnation(&config.identity, 0);
        let manager = self.manager(&env, ManagerConfig { admin: Some(admin), ..config });
        let manager = manager.register(Registration::controller::<Scribe>());
        let pages = manager.pages().clone();
        Shown { replica: self.run(env, manager), pages }
    }
}

/// Returns the lines between the versions and the paths.
fn held(pages: &Pages) -> Vec<String> {
    let path = "/statusz".to_owned();
    let (_, page) = pages.find(&path).expect("a page");
    let request = PageRequest { path, query: Vec::new(), accept: String::new(), reviewed: true };
    let text = String::from_utf8(page(&request).body.to_vec()).expect("text");
    assert!(text.contains("\nPaths: "), "{text}");
    let lines = text.lines().skip_while(|line| !line.starts_with("Emulation version: ")).skip(1);
    lines.take_while(|line| !line.starts_with("Paths: ")).map(str::to_owned).collect()
}

impl Shown {
    fn held(&self) -> Vec<String> {
        held(&self.pages)
    }

    /// Returns the shards in the only line, with their states.
    fn shards(&self) -> Vec<String> {
        let held = self.held();
        let [line] = held.as_slice() else { panic!("one line: {held:?}") };
        let shards = line.strip_prefix("Shards: ").and_then(|line| line.strip_suffix(", of 4"));
        let shards = shards.unwrap_or_else(|| panic!("{line}")).split(", ");
        shards.filter(|shard| *shard != "none").map(str::to_owned).collect()
    }

    async fn stop(self) {
        self.replica.stops().await;
    }
}

// parity: leads-lease-only
#[tokio::test(start_paused = true)]
async fn elected_replica_shows_its_lease_and_the_holder() {
    let world = World::new();
    world.fail("leases", FaultAction::Unavailable);
    let one = world.show(ManagerConfig::new("one"));
    world.pass(5).await;
    assert_eq!(one.held(), ["Lease default/windlass: holder unknown"]);
    world.api.inject_fault(|_| None);
    world.pass(30).await;
    let two = world.show(ManagerConfig::new("two"));
    world.pass(5).await;
    assert_eq!(one.held(), ["Lease default/windlass: held here"]);
    assert_eq!(two.held(), ["Lease default/windlass: held by one"]);
    one.stop().await;
    world.pass(5).await;
    assert_eq!(two.held(), ["Lease default/windlass: held here"], "the current state");
    two.stop().await;
}

#[tokio::test(start_paused = true)]
async fn replica_that_lost_its_lease_reports_the_loss() {
    let world = World::new();
    let one = world.show(ManagerConfig::new("one"));
    world.pass(5).await;
    world.api.upsert(LEASE, json!({ "spec": { "holderIdentity": "other" } }));
    let Shown { replica, pages } = one;
    assert!(matches!(replica.ended().await, Err(ManagerError::LeaseLost { .. })));
    assert_eq!(held(&pages), ["Lease default/windlass: lost"]);
}

// parity: leads-lease-only
#[tokio::test(start_paused = true)]
async fn sharded_replicas_show_their_shards_and_states() {
    let world = World::new();
    let sharing = |name: &str| ManagerConfig { shards: NonZeroU16::new(4), ..ManagerConfig::new(name) };
    let one = world.show(sharing("one"));
    world.pass(60).await;
    assert_eq!(one.held(), ["Shards: 0 working, 1 working, 2 working, 3 working, of 4"]);
    let two = world.show(sharing("two"));
    world.pass(60).await;
    let (ours, theirs) = (one.shards(), two.shards());
    assert_eq!((ours.len(), theirs.len()), (2, 2), "{ours:?} {theirs:?}");
    let mut all = [ours, theirs].concat();
    all.sort();
    assert_eq!(all, ["0 working", "1 working", "2 working", "3 working"], "each is held by one of them");
    one.stop().await;
    two.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sharded_replica_without_shards_reports_none() {
    let world = World::new();
    world.fail("leases", FaultAction::Unavailable);
    let one = world.show(ManagerConfig { shards: NonZeroU16::new(4), ..ManagerConfig::new("one") });
    world.pass(5).await;
    assert_eq!(one.held(), ["Shards: none, of 4"]);
    one.replica.dies().await;
}

// parity: leads-lease-only
#[tokio::test(start_paused = true)]
async fn replica_without_election_shows_neither() {
    let world = World::new();
    let one = world.show(ManagerConfig { election: None, ..ManagerConfig::new("one") });
    world.pass(5).await;
    assert_eq!(world.scribbled(), json!(begun_by("one")), "it works");
    assert_eq!(one.held(), Vec::<String>::new());
    one.replica.stops().await;
}
