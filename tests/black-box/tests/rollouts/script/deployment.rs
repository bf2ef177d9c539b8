//! Steps of a Deployment.

use serde_json::{Value, json};

use super::{Operation, State, image, set_image, template};

pub(super) fn spec(rng: &mut fastrand::Rng) -> Value {
    let surge = rng.i32(0..3);
    // The limits must not both be zero.
    let unavailable = if surge == 0 { rng.i32(1..3) } else { rng.i32(0..3) };
    let strategy = match rng.u32(..4) {
        0 => json!({ "type": "Recreate" }),
        _ => json!({ "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } }),
    };
    json!({ "replicas": rng.i32(0..5), "strategy": strategy })
}

pub(super) fn next(name: &'static str, state: &mut State, rng: &mut fastrand::Rng) -> Operation {
    match rng.u32(..100) {
        0..30 => set_image(name, state, rng),
        30..45 => Operation::scale(name, rng.i32(0..6)),
        45..53 => {
            let both = json!({ "replicas": rng.i32(0..6), "template": template(&image(rng)) });
            Operation::change_spec(name, &both)
        }
        53..67 => {
            state.paused = !state.paused;
            Operation::change_spec(name, &json!({ "paused": state.paused }))
        }
        67..77 => Operation::annotate(name, "deprecated.deployment.rollback.to", "0"),
        77..82 => Operation::set_history_limit(name, rng.i32(0..3)),
        82..86 => Operation::annotate(name, "note", &rng.u32(..).to_string()),
        86..90 => {
            let strategy = if rng.bool() { "Recreate" } else { "RollingUpdate" };
            let strategy = json!({ "type": strategy, "rollingUpdate": null });
            Operation::change_spec(name, &json!({ "strategy": strategy }))
        }
        90..94 => Operation::ReleaseNewestRevision { name },
        94..97 => Operation::DeleteNewestRevision { name },
        _ => Operation::Orphan { name },
    }
}
