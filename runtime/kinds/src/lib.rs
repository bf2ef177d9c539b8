//! The built-in kinds: number, JSON name and type of each field.
//!
//! The table is text in the binary. Its first use parses it into arrays with indices instead of names, so that a
//! process without protobuf never pays for it.
//!
//! Guarantees:
//! - The fields equal those of the Kubernetes version in the first lines of the table, which `cargo xtask describe`
//!   writes.
//! - This crate has no dependencies: derive macros use it when they are compiled.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

const TEXT: &str = include_str!("table.txt");
/// The version of the kinds that are in every group, for example `DeleteOptions`.
const SHARED: &str = "meta.k8s.io/v1";

/// A message of upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message(u16);

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Start of the JSON name in the text.
    name_start: u32,
    number: u16,
    field_type: FieldType,
    name_length: u8,
    cardinality: Cardinality,
    omits_empty: bool,
    is_required: bool,
}

/// The number of values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cardinality {
    /// One value.
    One,
    /// A list of values.
    List,
    /// A map from text to values.
    Map,
}

/// The type of the values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// Text.
    String,
    /// Bytes; base64 in JSON.
    Bytes,
    /// A boolean.
    Bool,
    /// An integer of 32 bits.
    Int32,
    /// An integer of 64 bits.
    Int64,
    /// A floating-point number.
    Double,
    /// A time in seconds.
    Time,
    /// A time in microseconds.
    MicroTime,
    /// A duration in nanoseconds; text such as `1m30s` in JSON.
    Duration,
    /// A quantity; text in JSON.
    Quantity,
    /// An integer or text.
    IntOrString,
    /// Embedded JSON.
    Json,
    /// A message that is a list of text in JSON.
    Strings,
    /// A message that is an object in JSON.
    Message(Message),
}

impl Message {
    /// Returns the message of a kind. Options and some other kinds are in every group.
    pub fn of_kind(api_version: &str, kind: &str) -> Option<Message> {
        let table = Table::get();
        table.find(api_version, kind).or_else(|| table.find(SHARED, kind))
    }

    /// Returns the message of a kind of exactly this version.
    pub fn of_version(api_version: &str, kind: &str) -> Option<Message> {
        Table::get().find(api_version, kind)
    }

    /// Returns a bit for each field, by position, with a time that generated types require.
    pub fn required_times(self) -> u128 {
        Table::get().required_times[usize::from(self.0)]
    }

    /// Returns the number of the message. It differs between versions of this crate.
    pub const fn index(self) -> u16 {
        self.0
    }

    /// Returns the field with this JSON name, also if it is in an inlined message.
    pub fn field(self, name: &str) -> Option<&'static Field> {
        self.fields().iter().find_map(|field| match (field.name(), field.field_type) {
            (Some(it), _) => (it == name).then_some(field),
            (None, FieldType::Message(inlined)) => inlined.field(name),
            (None, _) => None,
        })
    }

    /// Returns the JSON names of the fields, including those of inlined messages.
    pub fn names(self) -> Vec<&'static str> {
        let names = |field: &Field| match (field.name(), field.field_type) {
            (Some(name), _) => vec![name],
            (None, FieldType::Message(inlined)) => inlined.names(),
            (None, _) => Vec::new(),
        };
        self.fields().iter().flat_map(names).collect()
    }

    /// Returns the fields, ordered by number.
    pub fn fields(self) -> &'static [Field] {
        let table = Table::get();
        let of = &table.messages[usize::from(self.0)];
        &table.fields[usize::from(of.start)..usize::from(of.end)]
    }
}

impl Field {
    /// Returns the number in protobuf.
    pub fn number(&self) -> u64 {
        self.number.into()
    }

    /// Returns the name in JSON; `None` if the fields of the message are inlined.
    pub fn name(&self) -> Option<&'static str> {
        let start = self.name_start as usize;
        let name = TEXT.get(start..start + usize::from(self.name_length))?;
        (name != "-").then_some(name)
    }

    /// Returns the number of values.
    pub const fn cardinality(&self) -> Cardinality {
        self.cardinality
    }

    /// Returns the type of the values.
    pub const fn field_type(&self) -> FieldType {
        self.field_type
    }

    /// Returns whether JSON does not contain the field if it has the empty value of its type.
    pub const fn omits_empty(&self) -> bool {
        self.omits_empty
    }

    /// Returns whether the field is a time that generated types require.
    pub const fn is_required(&self) -> bool {
        self.is_required
    }
}

#[derive(Debug, Default)]
struct Table {
    /// Ranges of kinds by `apiVersion`.
    versions: BTreeMap<&'static str, Range<u16>>,
    /// Ordered by name in each version.
    kinds: Vec<(&'static str, Message)>,
    /// Ranges of fields.
    messages: Vec<Range<u16>>,
    fields: Vec<Field>,
    /// The required fields of each message.
    required_times: Vec<u128>,
}

impl Table {
    fn get() -> &'static Table {
        static TABLE: OnceLock<Table> = OnceLock::new();
        TABLE.get_or_init(|| Table::parse(TEXT))
    }

    fn find(&self, api_version: &str, kind: &str) -> Option<Message> {
        let of = self.versions.get(api_version)?;
        let kinds = self.kinds.get(usize::from(of.start)..usize::from(of.end))?;
        kinds.binary_search_by_key(&kind, |(name, _)| name).ok().map(|at| kinds[at].1)
    }

    /// Parses the text. Invalid lines are skipped; a test checks all lines.
    fn parse(text: &'static str) -> Table {
        let labels = text.lines().filter_map(|line| line.strip_prefix("message ")).zip(0..);
        let labels: BTreeMap<&str, u16> = labels.collect();
        let (mut table, mut version) = (Table::default(), None);
        for line in text.lines() {
            let mut words = line.trim_start().split(' ');
            match (words.next(), words.next(), words.next()) {
                (Some("kinds"), Some(name), None) => {
                    let start = index(table.kinds.len());
                    table.versions.insert(name, start..start);
                    version = Some(name);
                }
                (Some("message"), Some(_), None) => {
                    let start = index(table.fields.len());
                    table.messages.push(start..start);
                    version = None;
                }
                (Some(kind), label, None) => {
                    let message = labels.get(label.unwrap_or(kind)).copied();
                    let range = version.and_then(|version| table.versions.get_mut(version));
                    if let (Some(message), Some(range)) = (message, range) {
                        table.kinds.push((kind, Message(message)));
                        range.end += 1;
                    }
                }
                (Some(number), Some(name), Some(of)) => {
                    let field = Field::parse(text, number, name, of, &labels);
                    if let (Some(field), Some(range)) = (field, table.messages.last_mut()) {
                        table.fields.push(field);
                        range.end += 1;
                    }
                }
                _ => {}
            }
        }
        table.versions.retain(|_, kinds| kinds.start < kinds.end);
        table.required_times = table.messages.iter().map(|fields| required_times(&table, fields)).collect();
        table
    }
}

/// Returns a bit for each of these fields with a time that generated types require.
fn required_times(table: &Table, fields: &Range<u16>) -> u128 {
    let fields = &table.fields[usize::from(fields.start)..usize::from(fields.end)];
    fields.iter().zip(0..).filter(|(field, _)| field.is_required).map(|(_, at)| 1 << at).sum()
}

/// Returns an index; the table has less than 65,536 entries of each sort.
fn index(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

impl Field {
    fn parse(text: &str, number: &str, name: &str, of: &str, labels: &BTreeMap<&str, u16>) -> Option<Field> {
        let (cardinality, of) = match (of.strip_prefix("[]"), of.strip_prefix("{}")) {
            (Some(of), _) => (Cardinality::List, of),
            (_, Some(of)) => (Cardinality::Map, of),
            _ => (Cardinality::One, of),
        };
        let bare = name.trim_end_matches(['?', '!']);
        // Names are parts of the text.
        let start = (name.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
        Some(Field {
            name_start: start.try_into().ok()?,
            number: number.parse().ok()?,
            field_type: FieldType::parse(of, labels)?,
            name_length: bare.len().try_into().ok()?,
            cardinality,
            omits_empty: name.ends_with('?'),
            is_required: name.ends_with('!'),
        })
    }
}

impl FieldType {
    fn parse(of: &str, labels: &BTreeMap<&str, u16>) -> Option<FieldType> {
        Some(match of {
            "string" => FieldType::String,
            "bytes" => FieldType::Bytes,
            "bool" => FieldType::Bool,
            "int32" => FieldType::Int32,
            "int64" => FieldType::Int64,
            "double" => FieldType::Double,
            "time" => FieldType::Time,
            "microtime" => FieldType::MicroTime,
            "duration" => FieldType::Duration,
            "quantity" => FieldType::Quantity,
            "intorstring" => FieldType::IntOrString,
            "json" => FieldType::Json,
            "strings" => FieldType::Strings,
            label => FieldType::Message(Message(*labels.get(label)?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_valid() {
        let table = Table::get();
        let lines = TEXT.lines().filter(|line| line.starts_with(' ')).count();
        assert_eq!(table.fields.len() + table.kinds.len(), lines);
        assert_eq!(table.messages.len(), TEXT.lines().filter(|line| line.starts_with("message ")).count());
        for (range, index) in table.messages.iter().zip(0..) {
            let fields = Message(index).fields();
            assert!(fields.is_sorted_by_key(|it| it.number), "{index}: {fields:?}");
            assert!(range.len() <= 128, "the transcoder marks fields in 128 bits");
        }
        for version in table.versions.values() {
            let kinds = &table.kinds[usize::from(version.start)..usize::from(version.end)];
            assert!(kinds.is_sorted_by_key(|(name, _)| name), "{kinds:?}");
        }
    }

    #[test]
    fn only_conditions_and_series_of_events_require_a_time() {
        let count = |api_version, kind| {
            Message::of_version(api_version, kind).map(|it| it.required_times().count_ones())
        };
        assert_eq!(
            (count("v1", "Pod"), count("meta.k8s.io/v1", "PartialObjectMetadata")),
            (Some(0), Some(0))
        );
        let text = TEXT.lines().filter(|line| line.contains('!') && line.starts_with(' ')).count();
        assert!((2..10).contains(&text), "{text} required times");
    }

    #[test]
    fn table_stays_small_in_memory() {
        let table = Table::get();
        let bytes = size_of_val(table.fields.as_slice())
            + size_of_val(table.kinds.as_slice())
            + size_of_val(table.messages.as_slice());
        assert!(TEXT.len() < 160_000 && bytes < 100_000, "{} in the binary, {bytes} parsed", TEXT.len());
    }

    #[test]
    fn kinds_are_found_by_their_group_and_options_in_every_group() {
        let contains = |version, kind| Message::of_version(version, kind).is_some();
        assert!(contains("rbac.authorization.k8s.io/v1", "Role") && contains("v1", "PodList"));
        assert!(!contains("rbac/v1", "Role") && !contains("apps.example.com/v1", "Deployment"));
        let options = Message::of_kind("apps/v1", "DeleteOptions");
        assert!(options.is_some() && options == Message::of_kind("v1", "DeleteOptions"));
        assert_eq!(Message::of_kind("v9", "Pod"), None);
    }
}
