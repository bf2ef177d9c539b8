//! Deliberate differences of the in-process server, each with its reason.
//!
//! The suite requires that exactly these behaviors fail there. An entry is a decision: cheap behaviors are implemented
//! instead.

/// One behavior that the in-process server does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Behavior, as `group::behavior`.
    pub behavior: &'static str,
    /// Text in the failure. A failure without it is unexpected.
    pub failure: &'static str,
    /// Reason for the difference.
    pub reason: &'static str,
}

/// All deliberate differences.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        behavior: "formats::object_can_be_read_as_yaml",
        failure: "got      (406, \"application/json\")",
        reason: "kubectl requests JSON and prints YAML itself; no controller requests YAML",
    },
    Difference {
        behavior: "formats::validating_admission_policy_is_enforced",
        failure: "the policy was never enforced",
        reason: "tests of controllers have no cluster to protect; a webhook in a simulation has the same effect",
    },
    Difference {
        behavior: "formats::limit_range_sets_default_requests",
        failure: "never filled in",
        reason: "no workload runs here, so the resources of a container stay as written",
    },
    Difference {
        behavior: "subresources::status_write_creates_missing_service",
        failure: "expected 201, got 404",
        reason: "kube-apiserver creates a Service without an address here; for a controller, 404 is the safe answer",
    },
];
