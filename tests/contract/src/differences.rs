//! Where the server in the process deliberately behaves otherwise, each with its reason.
//!
//! The suite demands that exactly these fail there. An entry is a decision: what can be had cheaply is built instead.

/// Behaviours, as `group::behaviour`, and why the server in the process does not have them.
pub const DIFFERENCES: &[(&str, &str)] = &[
    (
        "formats::objects_can_be_read_as_protobuf",
        "JSON is all it speaks so far; there is one place where objects become bytes",
    ),
    (
        "formats::an_object_can_be_read_as_yaml",
        "kubectl asks for JSON and writes YAML itself; no controller asks for it",
    ),
    (
        "formats::a_rule_of_a_schema_is_enforced",
        "rules are programs in CEL, and an interpreter is a project of its own; they are kept and not run",
    ),
    (
        "formats::a_policy_of_admission_is_enforced",
        "policies are programs in CEL as well, and who tests controllers has no cluster to protect",
    ),
    (
        "formats::a_limit_range_fills_in_requests",
        "nothing runs here that could use up a node, so what a container may use is left as it was written",
    ),
];
