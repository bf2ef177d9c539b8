//! A seeded script of operations on ReplicaSets, Pods and Services.
//!
//! The seed and the script's own state determine the next step. This state is equal in every run as long as the
//! controllers behave equally. Pods are identified by rank, the order in which the script first observed them, because
//! their names are random.

use std::collections::BTreeMap;

/// The applications of a script. Each has its own selector, so that ReplicaSets do not compete for pods.
pub(crate) const APPS: [&str; 3] = ["a", "b", "c"];

/// One step of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Creates the application's ReplicaSet.
    CreateSet { app: &'static str, replicas: i32 },
    /// Changes the number of replicas.
    Scale { app: &'static str, replicas: i32 },
    /// Deletes the ReplicaSet and leaves its pods behind.
    OrphanSet { app: &'static str },
    /// Changes the labels of the template, not the selector.
    RelabelTemplate { app: &'static str, tier: String },
    /// Creates a pod that the application's selector matches.
    CreatePod { app: &'static str },
    /// Deletes a pod.
    DeletePod { rank: String },
    /// Removes a pod from its application, or adds it to one.
    RelabelPod { rank: String, app: Option<&'static str> },
    /// Makes a pod run, ready or not.
    SetReady { rank: String, ready: bool },
    /// Finishes a pod without deleting it.
    Fail { rank: String },
    /// Creates the application's Service.
    CreateService { app: &'static str, publish_not_ready: bool },
    /// Deletes the application's Service.
    DeleteService { app: &'static str },
}

/// The script's state of one pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownPod {
    /// Whether it runs and is ready, as the script last set it.
    pub(crate) ready: bool,
    /// Whether the script finished it.
    pub(crate) failed: bool,
}

/// The script's state between two steps.
#[derive(Debug, Default)]
pub(crate) struct Knowledge {
    /// Active pods by rank.
    pub(crate) pods: BTreeMap<String, KnownPod>,
    /// Existing ReplicaSets.
    pub(crate) sets: BTreeMap<&'static str, i32>,
    /// Existing Services.
    pub(crate) services: BTreeMap<&'static str, bool>,
}

/// A generator of steps.
#[derive(Debug)]
pub(crate) struct Script {
    rng: fastrand::Rng,
}

impl Script {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed) }
    }

    /// Returns the next step that is possible in the current state.
    pub(crate) fn next(&mut self, known: &Knowledge) -> Operation {
        loop {
            let drawn = self.draw(known);
            if let Some(operation) = drawn {
                return operation;
            }
        }
    }

    fn draw(&mut self, known: &Knowledge) -> Option<Operation> {
        let app = APPS[self.rng.usize(..APPS.len())];
        let has_set = known.sets.contains_key(app);
        match self.rng.u32(..100) {
            0..10 if !has_set => Some(Operation::CreateSet { app, replicas: self.rng.i32(0..6) }),
            10..26 if has_set => Some(Operation::Scale { app, replicas: self.rng.i32(0..9) }),
            26..29 if has_set => Some(Operation::OrphanSet { app }),
            29..32 if has_set => {
                Some(Operation::RelabelTemplate { app, tier: format!("tier-{}", self.rng.u32(..3)) })
            }
            32..40 => Some(Operation::CreatePod { app }),
            40..50 => Some(Operation::DeletePod { rank: self.pod(known)? }),
            50..57 => Some(Operation::RelabelPod { rank: self.pod(known)?, app: None }),
            57..64 => Some(Operation::RelabelPod { rank: self.pod(known)?, app: Some(app) }),
            64..80 => self.flip(known),
            80..84 => self.fail(known),
            84..95 if !known.services.contains_key(app) => {
                Some(Operation::CreateService { app, publish_not_ready: self.rng.bool() })
            }
            95..97 if known.services.contains_key(app) => Some(Operation::DeleteService { app }),
            _ => None,
        }
    }

    fn pod(&mut self, known: &Knowledge) -> Option<String> {
        let index = self.rng.usize(..known.pods.len().max(1));
        known.pods.keys().nth(index).cloned()
    }

    fn flip(&mut self, known: &Knowledge) -> Option<Operation> {
        let rank = self.pod(known)?;
        let pod = known.pods.get(&rank)?;
        (!pod.failed).then_some(Operation::SetReady { rank, ready: !pod.ready })
    }

    fn fail(&mut self, known: &Knowledge) -> Option<Operation> {
        let rank = self.pod(known)?;
        (!known.pods.get(&rank)?.failed).then_some(Operation::Fail { rank })
    }
}
