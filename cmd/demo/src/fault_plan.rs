//! Faults on request: failed requests, lost responses, broken watches, and pod deletions.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, ResourceExt as _};
use windlass::env::{Env, Rng, Task};
use windlass_api_server::faults::{Fault, FaultAction, FaultPlan};

/// Duration of the faults: longer than any demo runs.
const FOR_EVER: Duration = Duration::from_secs(1000 * 365 * 24 * 60 * 60);

/// Minimum and maximum time between two pod deletions.
const BETWEEN_DEATHS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));

/// Number of pods from which a victim is selected. The selection need not be uniform.
const CANDIDATES: u32 = 100;

/// Returns the faults between windlass and the API server, with probabilities per mille.
pub(crate) fn plan(seed: u64) -> FaultPlan {
    let steadily = |permille, what| Fault::until(FOR_EVER, what).permille(permille);
    let faults = vec![
        steadily(30, FaultAction::RequestLost { silently: false }),
        steadily(30, FaultAction::ResponseLost { silently: false }),
        steadily(30, FaultAction::Conflict),
        steadily(20, FaultAction::InternalError),
        steadily(20, FaultAction::Unavailable),
        steadily(20, FaultAction::TooManyRequests { retry_after_seconds: 1 }),
        steadily(100, FaultAction::ResponseDelayed { by_ms: 200 }),
        steadily(5, FaultAction::WatchReset),
        steadily(5, FaultAction::WatchExpired),
        steadily(50, FaultAction::WatchDelayed { by_ms: 500 }),
        steadily(20, FaultAction::EventDuplicated),
    ];
    FaultPlan { seed, faults }
}

/// Starts a task that deletes a random pod every 1 to 4 seconds.
pub(crate) fn start(env: &Env, client: Client) -> Task<()> {
    let (env, rng) = (env.clone(), env.rng("trouble"));
    env.clone().spawn("trouble", kill_pods(env, client, rng))
}

async fn kill_pods(env: Env, client: Client, mut rng: Rng) {
    let pods: Api<Pod> = Api::all(client.clone());
    loop {
        env.sleep(rng.between(BETWEEN_DEATHS.0, BETWEEN_DEATHS.1)).await;
        let Ok(list) = pods.list(&ListParams::default().limit(CANDIDATES)).await else { continue };
        let Ok(count @ 1..) = u64::try_from(list.items.len()) else { continue };
        let Some(pod) = usize::try_from(rng.below(count)).ok().and_then(|index| list.items.get(index)) else {
            continue;
        };
        let namespaced: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        // A pod that is already deleted is fine as well.
        let _gone = namespaced.delete(&pod.name_any(), &DeleteParams::default()).await;
    }
}
