//! One process with managers of several clusters.

use k8s_openapi::api::core::v1::ConfigMap;
use windlass::env::Task;
use windlass::manager::{ManagerError, ShutdownTrigger};
use windlass::metrics::Metrics;
use windlass::prelude::*;
use windlass::testing::api_server::faults::RequestSummary;

use crate::world::{ReconcileLog, World, controller, noting};

struct Running {
    log: ReconcileLog,
    metrics: Metrics,
    trigger: ShutdownTrigger,
    end: Task<Result<(), ManagerError>>,
}

/// Runs the same controller, under the same name, in a manager of this cluster.
fn run(world: &World, env: &Env) -> Running {
    let log = ReconcileLog::default();
    let notes = log.clone();
    let registration = controller("sees", move |setup| {
        setup.primary::<ConfigMap>();
        noting(&notes)
    });
    let manager = world.manager(env.clone(), registration);
    let metrics = manager.metrics().clone();
    let (trigger, signals) = ShutdownSignals::manual();
    let end = env.spawn("manager", manager.run(signals));
    Running { log, metrics, trigger, end }
}

/// In controller-runtime one manager has several "clusters", and controllers must distinguish them (controller-runtime
/// #745, #2746). Here each cluster has a manager, and each manager has an `Env` with its own name.
// parity: cache-before-anything-else, several-clusters
#[tokio::test(start_paused = true)]
async fn managers_of_two_clusters_share_only_the_process() {
    let here = World::new();
    let there = here.second_process();
    let (first, second) = (
        run(&here, &here.env.with_incarnation("here", 0)),
        run(&there, &here.env.with_incarnation("there", 0)),
    );
    here.put("a");
    there.put("b");
    here.pass(30).await;
    assert_eq!((first.log.lines(), second.log.lines()), (vec!["a".to_owned()], vec!["b".to_owned()]));
    for world in [&here, &there] {
        assert!(
            !world.sent_uris("leases", RequestSummary::is_write).is_empty(),
            "each manager is elected in its own cluster"
        );
        assert!(
            !world.sent_uris("configmaps", RequestSummary::is_watch).is_empty(),
            "each manager has its own caches"
        );
    }
    there.put("c");
    here.pass(1).await;
    for (one, times) in [(&first, 1), (&second, 2)] {
        let counted = format!("windlass_reconcile_total{{controller=\"sees\",result=\"success\"}} {times}");
        assert!(one.metrics.encode().contains(&counted), "each manager counts its own reconciles");
    }
    first.trigger.fire();
    first.end.await.expect("it is not aborted").expect("it stops in order");
    here.put("unseen");
    there.put("d");
    here.pass(60).await;
    assert_eq!(first.log.lines(), ["a"]);
    assert_eq!(second.log.lines(), ["b", "c", "d"], "the other manager continues");
    second.trigger.fire();
    second.end.await.expect("it is not aborted").expect("it stops in order");
}
