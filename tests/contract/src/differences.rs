//! Where the server in the process deliberately behaves otherwise, each with its reason.
//!
//! The suite demands that exactly these fail there. An entry is a decision: what can be had cheaply is built instead.

/// One behavior that the server in the process does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The behavior, as `group::behaviour`.
    pub behaviour: &'static str,
    /// What its failure says: any other failure is one nobody decided on.
    pub shows: &'static str,
    /// Why it is left out.
    pub reason: &'static str,
}

/// All of them.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        behaviour: "formats::objects_can_be_read_as_protobuf",
        shows: "got      (406, \"application/json\")",
        reason: "JSON is all it speaks so far; there is one place where objects become bytes",
    },
    Difference {
        behaviour: "formats::an_object_can_be_read_as_yaml",
        shows: "got      (406, \"application/json\")",
        reason: "kubectl asks for JSON and writes YAML itself; no controller asks for it",
    },
    Difference {
        behaviour: "formats::a_rule_of_a_schema_is_enforced",
        shows: "expected 422 Invalid, got 201",
        reason: "rules are programs in CEL, and an interpreter is a project of its own; they are kept and not run",
    },
    Difference {
        behaviour: "formats::a_policy_of_admission_is_enforced",
        shows: "the policy was never enforced",
        reason: "policies are programs in CEL as well, and who tests controllers has no cluster to protect",
    },
    Difference {
        behaviour: "formats::a_limit_range_fills_in_requests",
        shows: "never filled in",
        reason: "nothing runs here that could use up a node, so what a container may use is left as it was written",
    },
];
