//! Deliberate differences of the in-process server, each with its reason.
//!
//! The suite requires that exactly these behaviors fail there. An entry is a decision: cheap behaviors are implemented
//! instead.

/// One behavior that the in-process server does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Behavior, as `group::behavior`.
    pub behaviour: &'static str,
    /// Text in the failure. A failure without it is unexpected.
    pub shows: &'static str,
    /// Reason for the difference.
    pub reason: &'static str,
}

/// All deliberate differences.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        behaviour: "formats::objects_can_be_read_as_protobuf",
        shows: "got      (406, \"application/json\")",
        reason: "only JSON is implemented; a single function encodes objects",
    },
    Difference {
        behaviour: "formats::an_object_can_be_read_as_yaml",
        shows: "got      (406, \"application/json\")",
        reason: "kubectl requests JSON and prints YAML itself; no controller requests YAML",
    },
    Difference {
        behaviour: "formats::a_rule_of_a_schema_is_enforced",
        shows: "expected 422 Invalid, got 201",
        reason: "CEL rules need an interpreter, which is a separate project; they are stored and not evaluated",
    },
    Difference {
        behaviour: "formats::a_policy_of_admission_is_enforced",
        shows: "the policy was never enforced",
        reason: "policies are CEL programs too, and tests of controllers have no cluster to protect",
    },
    Difference {
        behaviour: "formats::a_limit_range_fills_in_requests",
        shows: "never filled in",
        reason: "no workload runs here, so the resources of a container stay as written",
    },
];
