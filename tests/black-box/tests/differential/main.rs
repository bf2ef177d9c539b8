//! Runs the same script against upstream's controllers and Windlass, and compares the objects after every step.
//!
//! First the script runs twice against upstream. These runs must agree; otherwise the script is faulty. The seed is
//! printed. `WINDLASS_SEED` sets the seed, `WINDLASS_STEPS` the number of steps.

#![expect(clippy::print_stdout, reason = "the seed and the counts are what this test is run for")]

mod observe;
mod play;
mod script;

use anyhow::{Context as _, Result, ensure};
use play::Step;
use windlass_black_box::{
    audit::{Write, count_by_kind},
    control_plane::with_control_plane,
    implementation::{CLIENTS, Implementation},
    number,
    test_namespace::TestNamespace,
};
use windlass_harness::ControlPlaneOptions;

const SEED: u64 = 20_361;
const STEPS: usize = 200;

struct Run {
    recording: Vec<Step>,
    writes: Vec<Write>,
}

async fn run(implementation: Implementation, seed: u64, steps: usize) -> Result<Run> {
    let options = ControlPlaneOptions::default().nodes(0).scheduler(false);
    with_control_plane(options, async |plane, audit| {
        let running = implementation.start(plane, &[]).await?;
        let namespace = plane.namespace("differential").await?;
        let namespace = TestNamespace { client: plane.client().await, namespace };
        let recording = play::play(&namespace, seed, steps)
            .await
            .with_context(|| format!("{implementation:?}, seed {seed}, log {}", running.log().display()))?;
        let mut writes = audit.writes(implementation.user_agent(), &CLIENTS)?;
        writes.retain(|write| {
            write.object_ref.as_ref().is_some_and(|target| target.namespace == namespace.namespace)
        });
        Ok(Run { recording, writes })
    })
    .await
}

fn same(seed: u64, left: (&str, &[Step]), right: (&str, &[Step])) -> Result<()> {
    for (index, (one, other)) in left.1.iter().zip(right.1).enumerate() {
        ensure!(
            one.operation == other.operation,
            "seed {seed}, step {index}: {} did {:?}, {} did {:?}",
            left.0,
            one.operation,
            right.0,
            other.operation
        );
        let names = one.namespace.keys().chain(other.namespace.keys());
        for name in names {
            ensure!(
                one.namespace.get(name) == other.namespace.get(name),
                "seed {seed}, step {index}, after {:?}: {name}\n{}: {:?}\n{}: {:?}",
                one.operation,
                left.0,
                one.namespace.get(name),
                right.0,
                other.namespace.get(name)
            );
        }
    }
    ensure!(left.1.len() == right.1.len(), "recordings of different length");
    Ok(())
}

// parity: sync-service
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windlass_matches_upstream_after_every_step_without_more_writes() -> Result<()> {
    let seed = number("WINDLASS_SEED", SEED)?;
    let steps = usize::try_from(number("WINDLASS_STEPS", STEPS as u64)?)?;
    println!("seed {seed}, {steps} steps");
    let (upstream, control, ours) = tokio::try_join!(
        run(Implementation::Upstream, seed, steps),
        run(Implementation::Upstream, seed, steps),
        run(Implementation::chosen()?, seed, steps),
    )?;
    same(seed, ("upstream", &upstream.recording), ("upstream again", &control.recording))
        .context("the script is not deterministic")?;
    same(seed, ("upstream", &upstream.recording), ("windlass", &ours.recording))?;

    println!("writes by upstream: {} {:#?}", upstream.writes.len(), count_by_kind(&upstream.writes));
    println!("writes by upstream again: {}", control.writes.len());
    println!("writes by windlass: {} {:#?}", ours.writes.len(), count_by_kind(&ours.writes));
    let created = ours.writes.iter().filter(|write| is_pod_creation(write)).count();
    println!(
        "writes per pod created: upstream {:.3}, windlass {:.3}",
        ratio(upstream.writes.len(), upstream.writes.iter().filter(|write| is_pod_creation(write)).count()),
        ratio(ours.writes.len(), created),
    );
    let bound = upstream.writes.len().max(control.writes.len());
    ensure!(ours.writes.len() <= bound, "windlass wrote {} times, upstream {bound}", ours.writes.len());
    Ok(())
}

fn is_pod_creation(write: &Write) -> bool {
    write.verb == "create" && write.object_ref.as_ref().is_some_and(|target| target.resource == "pods")
}

#[expect(clippy::cast_precision_loss, reason = "small counts, printed to three digits")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}
