//! The same script by upstream's controllers and by Windlass: equal objects after each step, and no more writes.
//!
//! The script is seeded; `WINDLASS_SEED` sets the seed, `WINDLASS_STEPS` the number of steps.

#![expect(clippy::print_stdout, reason = "the seed and the counts are what this test is run for")]

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use windlass_black_box::audit::{Write, count_by_kind, ensure_no_more_writes};
use windlass_black_box::comparison::{Step, compare};
use windlass_black_box::control_plane::with_control_plane;
use windlass_black_box::implementation::{HOUSEKEEPING_CLIENTS, HOUSEKEEPING_CONTROLLERS, Implementation};
use windlass_black_box::number;

use crate::objects::{Objects, RESYNC, options};
use crate::pods::{Pods, TERMINATED_PODS};
use crate::script::{Operation, Script};

const SEED: u64 = 4_711;
const STEPS: u64 = 40;

/// Prefix of the namespaces and nodes of the script.
const PREFIX: &str = "script-";
/// The namespace of the pods.
const PODS: &str = "pods";

struct Run {
    recordings: Vec<Vec<Step<Operation>>>,
    writes: Vec<Write>,
}

async fn run(implementation: Implementation, seed: u64, steps: u64) -> Result<Run> {
    with_control_plane(options(), async |plane, audit| {
        let objects = Objects::new(plane, PREFIX).await?;
        objects.create_namespace(PODS).await?;
        let mut pods = Pods::new(objects.namespace(PODS));
        pods.create_nodes().await?;
        let threshold = format!("--terminated-pod-gc-threshold={TERMINATED_PODS}");
        let arguments = [RESYNC, &threshold];
        let running = implementation.start_controllers(plane, &HOUSEKEEPING_CONTROLLERS, &arguments).await?;
        let recording = play(&objects, &mut pods, seed, steps).await;
        let recording = recording
            .with_context(|| format!("{implementation:?}, seed {seed}, log {}", running.log().display()))?;
        let writes = audit.writes(implementation.user_agent(), &HOUSEKEEPING_CLIENTS)?;
        Ok(Run { recordings: vec![recording], writes: without_repetitions(writes) })
    })
    .await
}

/// Plays the steps of the script. The last step of the recording contains the pods.
async fn play(objects: &Objects, pods: &mut Pods, seed: u64, steps: u64) -> Result<Vec<Step<Operation>>> {
    let mut script = Script::new(seed);
    let mut recording = Vec::new();
    let mut ttl = "0";
    for _ in 0..steps {
        let operation = script.next();
        if let Operation::SetNodes { ttl: expected, .. } = &operation {
            ttl = expected;
        }
        let context = || format!("{operation:?}");
        perform(objects, pods, &operation).await.with_context(context)?;
        let objects = objects.settle(ttl).await.with_context(context)?;
        recording.push(Step { operation, objects });
    }
    if let Some(last) = recording.last_mut() {
        last.objects = json!({ "objects": last.objects, "pods": pods.settle().await? });
    }
    Ok(recording)
}

async fn perform(objects: &Objects, pods: &mut Pods, operation: &Operation) -> Result<()> {
    match operation {
        Operation::CreateNamespace(name) => objects.create_namespace(name).await,
        Operation::DeleteNamespace(name) => objects.delete_namespace(name).await,
        Operation::ChangeAccount(name, patch) => objects.change_account(name, patch).await,
        Operation::DeleteAccount(name) => objects.delete_account(name).await,
        Operation::ChangeRootCa(name, patch) => objects.change_root_ca(name, patch).await,
        Operation::DeleteRootCa(name) => objects.delete_root_ca(name).await,
        Operation::SetNodes { count, .. } => objects.set_nodes(*count).await,
        Operation::ChangeTtl { node, value } => objects.change_ttl(*node, value).await,
        Operation::CreatePods { batch, seed } => pods.create_batch(*batch, *seed).await,
    }
}

/// Removes repeated writes of the collector: each of its passes deletes a pod with a finalizer again, and the number of
/// passes depends on the time.
fn without_repetitions(mut writes: Vec<Write>) -> Vec<Write> {
    let mut seen = BTreeSet::new();
    writes.retain(|write| {
        let target = write.object_ref.clone().unwrap_or_default();
        target.resource != "pods" || seen.insert((write.verb.clone(), target.subresource, target.name))
    });
    writes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn housekeeping_matches_upstream_after_each_step_without_more_writes() -> Result<()> {
    let (seed, steps) = (number("WINDLASS_SEED", SEED)?, number("WINDLASS_STEPS", STEPS)?);
    println!("seed {seed}, {steps} steps");
    let (upstream, ours) = tokio::try_join!(
        run(Implementation::Upstream, seed, steps),
        run(Implementation::chosen()?, seed, steps),
    )?;
    compare(&upstream.recordings, &ours.recordings)
        .with_context(|| format!("seed {seed}: left upstream, right windlass"))?;
    println!("writes by upstream: {} {:#?}", upstream.writes.len(), count_by_kind(&upstream.writes));
    println!("writes by windlass: {} {:#?}", ours.writes.len(), count_by_kind(&ours.writes));
    for client in HOUSEKEEPING_CLIENTS {
        let has_written = upstream.writes.iter().any(|it| it.user_agent.ends_with(client));
        ensure!(has_written, "{client} of upstream wrote nothing");
    }
    ensure_no_more_writes(&HOUSEKEEPING_CLIENTS, &upstream.writes, &ours.writes, |_| true)
}
