//! Conditions of a status: lists in which each type stands once at most.

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSetCondition, DeploymentCondition, ReplicaSetCondition, StatefulSetCondition},
        autoscaling::v2::HorizontalPodAutoscalerCondition,
        batch::v1::JobCondition,
        core::v1::{
            NamespaceCondition, NodeCondition, PersistentVolumeClaimCondition, PodCondition,
            ReplicationControllerCondition,
        },
    },
    apimachinery::pkg::apis::meta::v1::{Condition as MetaCondition, Time},
};

/// What the many condition types have in common.
pub trait Condition: Clone + PartialEq {
    /// What the condition is about: `Ready`, `Progressing`.
    fn of_type(&self) -> &str;
    /// `True`, `False` or `Unknown`.
    fn status(&self) -> &str;
    /// When the status last changed, where the type records it.
    fn last_transition(&self) -> Option<&Time>;
    /// Records when the status last changed; `None` says nothing is known.
    fn set_last_transition(&mut self, at: Option<Time>);
}

/// The condition of a type.
pub fn find<'a, C: Condition>(conditions: &'a [C], of_type: &str) -> Option<&'a C> {
    conditions.iter().find(|condition| condition.of_type() == of_type)
}

/// Puts a condition instead of the one of its type, or at the end, and says whether anything changed.
///
/// The time of the last transition is kept when the status stays what it was: a new reason or message is no
/// transition.
pub fn set<C: Condition>(conditions: &mut Vec<C>, mut condition: C) -> bool {
    let Some(present) = conditions.iter_mut().find(|present| present.of_type() == condition.of_type()) else {
        conditions.push(condition);
        return true;
    };
    if present.status() == condition.status() {
        condition.set_last_transition(present.last_transition().cloned());
    }
    let changed = *present != condition;
    *present = condition;
    changed
}

/// Like [`set`], for common conditions, of which each says which generation of the object it is about: a condition about
/// an older generation than the present one changes nothing. An object that was created again with an old status keeps the
/// condition until its generation catches up.
pub fn set_condition(conditions: &mut Vec<MetaCondition>, condition: MetaCondition) -> bool {
    let is_newer =
        |present: &MetaCondition| match (present.observed_generation, condition.observed_generation) {
            (Some(present), Some(new)) => present > new,
            (None, _) | (_, None) => false,
        };
    let present = find(conditions, &condition.type_);
    !present.is_some_and(is_newer) && set(conditions, condition)
}

/// The status of a condition.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody can say.
    Unknown,
}

impl ConditionStatus {
    /// The status as objects carry it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Takes away the condition of a type, and says whether there was one.
pub fn remove<C: Condition>(conditions: &mut Vec<C>, of_type: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.of_type() != of_type);
    conditions.len() != before
}

macro_rules! conditions {
    ($($condition:ty),* $(,)?) => {$(
        impl Condition for $condition {
            fn of_type(&self) -> &str {
                &self.type_
            }
            fn status(&self) -> &str {
                &self.status
            }
            fn last_transition(&self) -> Option<&Time> {
                self.last_transition_time.as_ref()
            }
            fn set_last_transition(&mut self, at: Option<Time>) {
                self.last_transition_time = at;
            }
        }
    )*};
}

conditions![
    DaemonSetCondition,
    DeploymentCondition,
    HorizontalPodAutoscalerCondition,
    JobCondition,
    NamespaceCondition,
    NodeCondition,
    PersistentVolumeClaimCondition,
    PodCondition,
    ReplicaSetCondition,
    ReplicationControllerCondition,
    StatefulSetCondition,
];

/// The common condition always carries a transition time; setting none leaves it as it is.
impl Condition for MetaCondition {
    fn of_type(&self) -> &str {
        &self.type_
    }
    fn status(&self) -> &str {
        &self.status
    }
    fn last_transition(&self) -> Option<&Time> {
        Some(&self.last_transition_time)
    }
    fn set_last_transition(&mut self, at: Option<Time>) {
        if let Some(at) = at {
            self.last_transition_time = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time;

    fn ready(status: &str, reason: &str, second: i64) -> PodCondition {
        PodCondition {
            type_: "Ready".into(),
            status: status.into(),
            reason: Some(reason.into()),
            last_transition_time: Some(time::seconds(jiff::Timestamp::from_second(second).unwrap())),
            ..Default::default()
        }
    }

    #[test]
    fn type_stands_once() {
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, ready("False", "Starting", 1)));
        assert!(set(&mut conditions, ready("True", "Started", 2)));
        assert_eq!(conditions, [ready("True", "Started", 2)]);
    }

    // parity: create-or-update
    #[test]
    fn setting_what_already_stands_changes_nothing() {
        let mut conditions = vec![ready("True", "Started", 1)];
        assert!(!set(&mut conditions, ready("True", "Started", 9)));
        assert_eq!(conditions, [ready("True", "Started", 1)]);
    }

    #[test]
    fn new_reason_is_no_transition() {
        let mut conditions = vec![ready("False", "Starting", 1)];
        assert!(set(&mut conditions, ready("False", "Failing", 9)));
        assert_eq!(conditions, [ready("False", "Failing", 1)]);
    }

    #[test]
    fn condition_about_an_older_generation_changes_nothing() {
        let about = |generation: Option<i64>, status: ConditionStatus| MetaCondition {
            type_: "Ready".into(),
            status: status.as_str().into(),
            reason: "Replicas".into(),
            message: String::new(),
            observed_generation: generation,
            last_transition_time: time::seconds(jiff::Timestamp::UNIX_EPOCH),
        };
        let mut conditions = Vec::new();
        assert!(set_condition(&mut conditions, about(Some(2), true.into())));
        assert!(!set_condition(&mut conditions, about(Some(1), false.into())));
        assert!(set_condition(&mut conditions, about(Some(2), ConditionStatus::Unknown)));
        assert!(set_condition(&mut conditions, about(None, false.into())));
        assert_eq!(conditions, [about(None, false.into())]);
    }

    #[test]
    fn removing_says_whether_there_was_one() {
        let mut conditions = vec![ready("True", "Started", 1)];
        assert!(!remove(&mut conditions, "Initialized"));
        assert!(remove(&mut conditions, "Ready"));
        assert!(find(&conditions, "Ready").is_none());
    }
}
