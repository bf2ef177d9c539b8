//! Conditions of a status: lists that contain each condition type at most once.

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

/// Accessors that all condition types have in common.
pub trait Condition: Clone + PartialEq {
    /// Returns the type of the condition: `Ready`, `Progressing`.
    fn of_type(&self) -> &str;
    /// Returns the status: `True`, `False` or `Unknown`.
    fn status(&self) -> &str;
    /// Returns the time of the last status change; `None` if the condition type does not record it.
    fn last_transition(&self) -> Option<&Time>;
    /// Sets the time of the last status change; `None` means unknown.
    fn set_last_transition(&mut self, at: Option<Time>);
}

/// Returns the condition of this type.
pub fn find<'a, C: Condition>(conditions: &'a [C], of_type: &str) -> Option<&'a C> {
    conditions.iter().find(|condition| condition.of_type() == of_type)
}

/// Replaces the condition of the same type, or appends the condition. Returns whether anything changed.
///
/// The time of the last transition is kept while the status is unchanged: a new reason or message is not a transition.
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

/// Like [`set`], for the common condition type, which records the generation that it describes. A condition for an
/// older generation than the present condition is ignored. If an object is recreated with an old status, the old
/// condition stays until the generation of the new object reaches it.
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
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The state of the condition cannot be determined.
    Unknown,
}

impl ConditionStatus {
    /// Returns the status in the format of the API.
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

/// Removes the condition of this type. Returns whether the condition was present.
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

/// The common condition always has a transition time; setting `None` leaves it unchanged.
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
    fn condition_type_occurs_once() {
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, ready("False", "Starting", 1)));
        assert!(set(&mut conditions, ready("True", "Started", 2)));
        assert_eq!(conditions, [ready("True", "Started", 2)]);
    }

    // parity: create-or-update
    #[test]
    fn setting_an_equal_condition_changes_nothing() {
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
    fn condition_of_older_generation_changes_nothing() {
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
    fn remove_returns_whether_condition_was_present() {
        let mut conditions = vec![ready("True", "Started", 1)];
        assert!(!remove(&mut conditions, "Initialized"));
        assert!(remove(&mut conditions, "Ready"));
        assert!(find(&conditions, "Ready").is_none());
    }
}
