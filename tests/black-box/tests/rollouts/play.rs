//! Performs a script in a scene, acts as its nodes, and records the objects after each step.
//!
//! One pod becomes ready at a time, when nothing else changes, so that all implementations see the same order.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures_util::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;
use windlass_black_box::{
    comparison::Step, fixtures::is_ready, recorded_events::recorded_events, wait::TIMEOUT,
};

use crate::{
    observe::{Objects, target},
    scene::Scene,
    script::{BROKEN, Operation, Script},
};

/// Time without a write after which the controllers have reacted. They need a few milliseconds, on a busy machine more.
const QUIET: Duration = Duration::from_millis(700);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Time after which changes count as endless. A busy machine needs half a minute for the objects of the swap test.
const MAX_CHANGES: Duration = Duration::from_secs(120);

/// Plays `steps` operations of the script with this seed. The last step of the recording contains the Events.
pub(crate) async fn play(scene: &Scene, seed: u64, steps: u64) -> Result<Vec<Step<Operation>>> {
    let mut script = Script::new(scene.kind, seed);
    let mut recording = Vec::new();
    for _ in 0..steps {
        let operation = script.next();
        let context = || format!("{:?} {operation:?}", scene.kind);
        scene.perform(&operation).await.with_context(context)?;
        let objects = settle(scene, Pace::OneByOne).await.with_context(context)?.comparable();
        recording.push(Step { operation, objects });
    }
    if let Some(last) = recording.last_mut() {
        let events = recorded_events(&scene.namespace).await?;
        last.objects = json!({ "objects": last.objects, "events": events });
    }
    Ok(recording)
}

/// Order in which pods become ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The next pod becomes ready when the controllers have reacted to the last one.
    OneByOne,
    AllAtOnce,
}

/// Acts as scheduler and nodes until nothing changes, and returns the objects.
pub(crate) async fn settle(scene: &Scene, pace: Pace) -> Result<Objects> {
    loop {
        let objects = quiet(scene).await?;
        let mut pods = objects.pods_in_order();
        pods.retain(|pod| node_to_bind(pod).is_some() || can_start(pod));
        if pods.is_empty() {
            return Ok(objects);
        }
        if pace == Pace::OneByOne {
            pods.truncate(1);
        }
        try_join_all(pods.into_iter().map(|pod| advance(scene, pod))).await?;
    }
}

/// Binds a pod to its node, and makes it ready.
async fn advance(scene: &Scene, pod: &Pod) -> Result<()> {
    if let Some(node) = node_to_bind(pod) {
        scene.bind(&pod.name_any(), node).await?;
    }
    if can_start(pod) {
        scene.namespace.start_pod(&pod.name_any()).await?;
    }
    Ok(())
}

/// Returns the node that a pod without a node is for.
fn node_to_bind(pod: &Pod) -> Option<&str> {
    let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    if is_bound { None } else { target(pod) }
}

fn can_start(pod: &Pod) -> bool {
    !is_broken(pod) && !is_ready(pod)
}

/// Returns whether the pod has an image with which it never becomes ready.
pub(crate) fn is_broken(pod: &Pod) -> bool {
    pod.spec.iter().any(|spec| spec.containers[0].image.as_deref() == Some(BROKEN))
}

async fn quiet(scene: &Scene) -> Result<Objects> {
    let started = Instant::now();
    let mut last = scene.objects().await?;
    let mut quiet_since = Instant::now();
    let mut unchanged_since = quiet_since;
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let objects = scene.objects().await?;
        let is_changed = objects.versions() != last.versions();
        if is_changed {
            unchanged_since = Instant::now();
        }
        if is_changed || !objects.is_settled() {
            quiet_since = Instant::now();
        }
        last = objects;
        if quiet_since.elapsed() >= QUIET {
            return Ok(last);
        }
        if unchanged_since.elapsed() > TIMEOUT || started.elapsed() > MAX_CHANGES {
            bail!("the objects do not settle: {}", last.comparable());
        }
    }
}
