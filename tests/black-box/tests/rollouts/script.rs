//! A seeded script of operations on Deployments. The next step depends on the seed and on earlier steps only, never on
//! objects, so that it is equal for all implementations.

use std::collections::BTreeMap;

/// Names of the Deployments of a script.
pub(crate) const NAMES: [&str; 2] = ["a", "b"];

/// An image whose pods never become ready.
pub(crate) const BROKEN: &str = "broken";

/// One step of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create {
        name: &'static str,
        replicas: i32,
        recreates: bool,
        surge: i32,
        unavailable: i32,
    },
    SetImage {
        name: &'static str,
        image: String,
    },
    Scale {
        name: &'static str,
        replicas: i32,
    },
    /// Changes size and image in one request.
    ScaleAndSetImage {
        name: &'static str,
        replicas: i32,
        image: String,
    },
    SetPaused {
        name: &'static str,
        paused: bool,
    },
    /// Requests the previous revision by annotation.
    RollBack {
        name: &'static str,
    },
    SetHistoryLimit {
        name: &'static str,
        limit: i32,
    },
    Annotate {
        name: &'static str,
        value: u32,
    },
    SetStrategy {
        name: &'static str,
        recreates: bool,
    },
    /// Removes the labels of the newest ReplicaSet, so that it is released.
    ReleaseNewestSet {
        name: &'static str,
    },
    DeleteNewestSet {
        name: &'static str,
    },
    /// Deletes the Deployment without its ReplicaSets.
    Orphan {
        name: &'static str,
    },
}

/// A generator of steps.
#[derive(Debug)]
pub(crate) struct Script {
    rng: fastrand::Rng,
    /// Existing Deployments, and whether they are paused.
    paused: BTreeMap<&'static str, bool>,
}

impl Script {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), paused: BTreeMap::new() }
    }

    pub(crate) fn next(&mut self) -> Operation {
        let name = NAMES[self.rng.usize(..NAMES.len())];
        let Some(&paused) = self.paused.get(name) else {
            self.paused.insert(name, false);
            return self.create(name);
        };
        let rng = &mut self.rng;
        match rng.u32(..100) {
            0..30 => Operation::SetImage { name, image: image(rng) },
            30..45 => Operation::Scale { name, replicas: rng.i32(0..6) },
            45..53 => Operation::ScaleAndSetImage { name, replicas: rng.i32(0..6), image: image(rng) },
            53..67 => {
                self.paused.insert(name, !paused);
                Operation::SetPaused { name, paused: !paused }
            }
            67..77 => Operation::RollBack { name },
            77..82 => Operation::SetHistoryLimit { name, limit: rng.i32(0..3) },
            82..86 => Operation::Annotate { name, value: rng.u32(..) },
            86..90 => Operation::SetStrategy { name, recreates: rng.bool() },
            90..94 => Operation::ReleaseNewestSet { name },
            94..97 => Operation::DeleteNewestSet { name },
            _ => {
                self.paused.remove(name);
                Operation::Orphan { name }
            }
        }
    }

    fn create(&mut self, name: &'static str) -> Operation {
        let rng = &mut self.rng;
        let surge = rng.i32(0..3);
        // The limits must not both be zero.
        let unavailable = if surge == 0 { rng.i32(1..3) } else { rng.i32(0..3) };
        Operation::Create { name, replicas: rng.i32(0..5), recreates: rng.u32(..4) == 0, surge, unavailable }
    }
}

fn image(rng: &mut fastrand::Rng) -> String {
    match rng.u32(..5) {
        0 => BROKEN.to_owned(),
        number => format!("image-{number}"),
    }
}
