//! Steps of a StatefulSet.

use serde_json::{Value, json};

use super::{NAMES, Operation, State, roll_back, set_image};

/// Returns a spec. Only the first name has claims, because orphaned pods cannot get other volumes.
pub(super) fn spec(name: &str, rng: &mut fastrand::Rng) -> Value {
    let policy = if rng.bool() { "OrderedReady" } else { "Parallel" };
    let strategy = match rng.u32(..5) {
        0 => json!({ "type": "OnDelete" }),
        1 => json!({ "rollingUpdate": { "partition": rng.i32(1..4) } }),
        // Without a partition, the revision of a pod that is deleted during a rollout depends on whether upstream's
        // cache contains its last write of the status.
        _ => json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } }),
    };
    let mut spec = json!({
        "replicas": rng.i32(0..5),
        "serviceName": "service",
        "podManagementPolicy": policy,
        "updateStrategy": strategy,
    });
    if name == NAMES[0] {
        spec["volumeClaimTemplates"] = json!([{
            "metadata": { "name": "data" },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        }]);
        spec["persistentVolumeClaimRetentionPolicy"] = retention_policy(rng);
    }
    spec
}

fn retention_policy(rng: &mut fastrand::Rng) -> Value {
    let mut policy = || if rng.bool() { "Retain" } else { "Delete" };
    json!({ "whenDeleted": policy(), "whenScaled": policy() })
}

pub(super) fn next(name: &'static str, state: &mut State, rng: &mut fastrand::Rng) -> Operation {
    match rng.u32(..100) {
        0..25 => set_image(name, state, rng),
        25..34 => roll_back(name, state),
        34..54 => Operation::scale(name, rng.i32(0..5)),
        54..61 => {
            let strategy =
                json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": rng.i32(0..4) } });
            Operation::change_spec(name, &json!({ "updateStrategy": strategy }))
        }
        61..67 => Operation::set_history_limit(name, rng.i32(0..3)),
        67..83 => Operation::DeletePod { name, index: rng.usize(..4) },
        83..88 => Operation::DeleteNewestRevision { name },
        88..91 => Operation::ReleaseNewestRevision { name },
        91..96 => {
            let policy = retention_policy(rng);
            Operation::change_spec(name, &json!({ "persistentVolumeClaimRetentionPolicy": policy }))
        }
        _ => Operation::Orphan { name },
    }
}
