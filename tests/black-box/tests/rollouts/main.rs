//! Rollouts by upstream's controllers and by Windlass: the same script on each, and one after the other on the same
//! objects.
//!
//! The script is seeded; `WINDLASS_SEED` sets the seed, `WINDLASS_STEPS` the steps of each of its namespaces (default
//! 12).

#![expect(clippy::print_stdout, reason = "the seed and the counts are what these tests are run for")]

mod kind;
mod observe;
mod play;
mod scene;
mod script;
mod swap;

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use kind::Kind;
use play::play;
use scene::{Scene, options};
use script::Operation;
use windlass_black_box::{
    audit::{Write, count_by_kind, ensure_no_more_writes},
    comparison::{Step, compare},
    control_plane::with_control_plane,
    implementation::{CLIENTS, Implementation},
    number,
};
use windlass_harness::ControlPlane;

const SEED: u64 = 4_711;
const STEPS: u64 = 12;
/// Scripts of each kind that run at the same time, because each waits most of its time.
const NAMESPACES: u64 = 3;
/// Nodes of each DaemonSet of a script. It selects all but the last at first.
const NODES: usize = 4;

struct Run {
    recordings: Vec<Vec<Step<Operation>>>,
    writes: Vec<Write>,
}

async fn run(implementation: Implementation, seed: u64, steps: u64) -> Result<Run> {
    with_control_plane(options(), async |plane, audit| {
        let running = implementation.start(plane, &[]).await?;
        let numbered = Kind::ALL.into_iter().flat_map(|kind| (0..NAMESPACES).map(move |it| (kind, it)));
        let numbered: Vec<_> = numbered.collect();
        let scenes = try_join_all(numbered.iter().map(|(kind, number)| scene(plane, *kind, *number))).await?;
        let plays =
            scenes.iter().zip(&numbered).map(|(scene, (_, number))| play(scene, seed + number, steps));
        let recordings = try_join_all(plays).await;
        let recordings = recordings
            .with_context(|| format!("{implementation:?}, seed {seed}, log {}", running.log().display()))?;
        let mut writes = audit.writes(implementation.user_agent(), &CLIENTS)?;
        writes.retain(|write| write.object_ref.as_ref().is_some_and(|it| it.namespace.contains("rollouts-")));
        try_join_all(scenes.iter().map(Scene::remove_nodes)).await?;
        Ok(Run { recordings, writes })
    })
    .await
}

async fn scene(plane: &ControlPlane, kind: Kind, number: u64) -> Result<Scene> {
    let scene = Scene::new(plane, kind, &format!("rollouts-{number}")).await?;
    if kind == Kind::DaemonSet {
        for name in script::NAMES {
            for index in 0..NODES {
                let selected_by = if index + 1 < NODES { &[name][..] } else { &[] };
                scene.add_node(name, index, selected_by).await?;
            }
        }
    }
    Ok(scene)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollouts_match_upstream_after_each_step_without_more_writes() -> Result<()> {
    let (seed, steps) = (number("WINDLASS_SEED", SEED)?, number("WINDLASS_STEPS", STEPS)?);
    println!("seed {seed}, {NAMESPACES} namespaces of each kind, {steps} steps each");
    let (upstream, ours) = tokio::try_join!(
        run(Implementation::Upstream, seed, steps),
        run(Implementation::chosen()?, seed, steps),
    )?;
    compare(&upstream.recordings, &ours.recordings)
        .with_context(|| format!("seed {seed}: left upstream, right windlass"))?;
    println!("writes by upstream: {} {:#?}", upstream.writes.len(), count_by_kind(&upstream.writes));
    println!("writes by windlass: {} {:#?}", ours.writes.len(), count_by_kind(&ours.writes));
    let (most, sent) = (upstream.writes.len(), ours.writes.len());
    ensure!(sent <= most, "windlass wrote {sent} times, upstream {most}");
    // The number of status writes depends on the speed of the run.
    let is_status = |write: &Write| write.object_ref.as_ref().is_some_and(|it| it.subresource == "status");
    ensure_no_more_writes(&CLIENTS, &upstream.writes, &ours.writes, |write| !is_status(write))
}
