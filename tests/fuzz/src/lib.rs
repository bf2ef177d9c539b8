//! Properties of parsers for untrusted bytes: one property per parser, as a function of bytes that panics when the
//! property does not hold.
//!
//! Guarantees:
//! - Every property states more than "no panic": equal frames for all chunk sizes; a head equals the full decode;
//!   printed values parse to the same meaning.
//! - The same functions run under libFuzzer with random bytes (`cargo xtask fuzz`), and in `cargo test` with the inputs
//!   in `corpus/`.
//!
//! The crate does not depend on a fuzzer and builds with the same compiler as all other code.

pub mod corpus;
mod fields;
mod frames;
mod gotext;
mod labels;
mod list;
mod object;
mod protobuf;
mod reference;
mod settings;
mod status;

/// A property and its name.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name in commands and files.
    pub name: &'static str,
    /// Panics if the property does not hold for these bytes.
    pub check: fn(&[u8]),
    /// Inputs that are always tested, one per line; see [`corpus`].
    pub corpus: &'static str,
}

macro_rules! target {
    ($name:literal, $check:expr) => {
        Target { name: $name, check: $check, corpus: include_str!(concat!("../corpus/", $name, ".txt")) }
    };
}

/// All properties.
pub const TARGETS: &[Target] = &[
    // Streamed lists are frames too, up to the bookmark that ends them.
    target!("frames", frames::any_cuts_give_the_same_frames),
    target!("list", list::list_split_equals_full_decode),
    target!("head", object::header_equals_full_decode),
    target!("protobuf", protobuf::any_message_gives_valid_json_or_an_error),
    target!("status", status::any_body_gives_a_status),
    target!("label_selector", labels::sent_selector_has_same_meaning),
    target!("label_query", labels::printed_label_query_has_same_meaning),
    target!("field_query", fields::field_query_selects_by_its_terms),
    target!("pod_template", gotext::texts_of_a_template_are_stable),
    target!("quantity", gotext::quantities_are_ordered),
    target!("command_line", settings::command_line_is_rejected_in_one_line_or_round_trips),
    target!("config_file", settings::config_file_is_rejected_by_name_or_round_trips),
];

/// Returns the property of a name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|it| it.name == name)
}
