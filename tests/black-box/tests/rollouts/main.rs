//! Rollouts by upstream's controllers and by Windlass: the same script on each, and one after the other on the same
//! objects.
//!
//! The script is seeded; `WINDLASS_SEED` sets the seed, `WINDLASS_STEPS` the steps of each of its namespaces (default 12).

#![expect(clippy::print_stdout, reason = "the seed and the counts are what these tests are run for")]

mod observe;
mod play;
mod script;
mod swap;

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use play::{Step, play};
use windlass_black_box::{
    audit::{Write, count_by_kind},
    control_plane::with_control_plane,
    implementation::{CLIENTS, Implementation},
    number,
    test_namespace::TestNamespace,
};
use windlass_harness::ControlPlaneOptions;

const SEED: u64 = 4_711;
const STEPS: u64 = 12;
/// Scripts that run at the same time, because each waits most of its time.
const NAMESPACES: u64 = 5;

struct Run {
    recordings: Vec<Vec<Step>>,
    writes: Vec<Write>,
}

async fn run(implementation: Implementation, seed: u64, steps: u64) -> Result<Run> {
    let options = ControlPlaneOptions::default().nodes(0).scheduler(false);
    with_control_plane(options, async |plane, audit| {
        let running = implementation.start(plane, &[]).await?;
        let mut namespaces = Vec::new();
        for number in 0..NAMESPACES {
            let namespace = plane.namespace(&format!("rollouts-{number}")).await?;
            namespaces.push(TestNamespace { client: plane.client().await, namespace });
        }
        let plays = namespaces.iter().zip(seed..).map(|(namespace, seed)| play(namespace, seed, steps));
        let recordings = try_join_all(plays).await;
        let recordings = recordings
            .with_context(|| format!("{implementation:?}, seed {seed}, log {}", running.log().display()))?;
        let mut writes = audit.writes(implementation.user_agent(), &CLIENTS)?;
        writes.retain(|write| write.object_ref.as_ref().is_some_and(|it| it.namespace.contains("rollouts-")));
        Ok(Run { recordings, writes })
    })
    .await
}

fn compare(left: &Run, right: &Run) -> Result<()> {
    for (namespace, (left, right)) in left.recordings.iter().zip(&right.recordings).enumerate() {
        ensure!(left.len() == right.len(), "namespace {namespace}: recordings of different length");
        for (index, (one, other)) in left.iter().zip(right).enumerate() {
            let step = format!("namespace {namespace}, step {index}, {:?}", one.operation);
            ensure!(one.operation == other.operation, "{step}: the right side did {:?}", other.operation);
            for name in one.objects.keys().chain(other.objects.keys()) {
                let (left, right) = (one.objects.get(name), other.objects.get(name));
                ensure!(left == right, "{step}: {name}\nleft:  {left:#?}\nright: {right:#?}");
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollouts_match_upstream_after_each_step_without_more_writes() -> Result<()> {
    let (seed, steps) = (number("WINDLASS_SEED", SEED)?, number("WINDLASS_STEPS", STEPS)?);
    println!("seed {seed}, {NAMESPACES} namespaces, {steps} steps each");
    let (upstream, ours) = tokio::try_join!(
        run(Implementation::Upstream, seed, steps),
        run(Implementation::chosen()?, seed, steps),
    )?;
    compare(&upstream, &ours).with_context(|| format!("seed {seed}: left upstream, right windlass"))?;
    println!("writes by upstream: {} {:#?}", upstream.writes.len(), count_by_kind(&upstream.writes));
    println!("writes by windlass: {} {:#?}", ours.writes.len(), count_by_kind(&ours.writes));
    let (most, sent) = (upstream.writes.len(), ours.writes.len());
    ensure!(sent <= most, "windlass wrote {sent} times, upstream {most}");
    Ok(())
}
