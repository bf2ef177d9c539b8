//! Steps of a DaemonSet. Its strategy does not change: upstream replaces available old pods in random order, so that
//! they must be equal.

use serde_json::{Value, json};

use super::{Operation, State, roll_back, set_image};

pub(super) fn spec(rng: &mut fastrand::Rng) -> Value {
    let strategy = match rng.u32(..5) {
        0 => json!({ "type": "OnDelete" }),
        1 | 2 => json!({ "rollingUpdate": { "maxSurge": rng.i32(1..3), "maxUnavailable": 0 } }),
        _ => json!({ "rollingUpdate": { "maxUnavailable": rng.i32(1..3) } }),
    };
    json!({ "updateStrategy": strategy })
}

pub(super) fn next(name: &'static str, state: &mut State, rng: &mut fastrand::Rng) -> Operation {
    match rng.u32(..100) {
        0..28 => set_image(name, state, rng),
        28..38 => roll_back(name, state),
        38..62 => Operation::ToggleNode { name, index: rng.usize(..4) },
        62..76 => Operation::DeletePod { name, index: rng.usize(..4) },
        76..83 => Operation::set_history_limit(name, rng.i32(0..3)),
        83..89 => Operation::DeleteNewestRevision { name },
        89..95 => Operation::ReleaseNewestRevision { name },
        _ => Operation::Orphan { name },
    }
}
