//! Query parameters, decoded and rejected as upstream does.
//!
//! Booleans are always valid: only `0` and `false` mean false. Numbers are strict. Unknown parameters are ignored.
//! Combinations of a write's parameters are checked before the write; those of lists and watches in [`crate::read`].

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_object::Verb;

use super::causes::{cause, check_dry_run, forbidden, not_supported, required};
use super::options::{DeleteBody, Preconditions};
use crate::go_duration::go_duration;
use crate::read::{ListOptions, WatchOptions};
use crate::registry::{FieldValidation, PatchKind, WriteOptions};
use crate::status::{Cause, Status};

/// Maximum length of a field manager's name in bytes.
const FIELD_MANAGER_MAX: usize = 128;

/// API group of the option types.
const META: &str = "meta.k8s.io";

/// The parameters of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(BTreeMap<String, Vec<String>>);

/// Parameters of a list, a watch or a collection deletion, before validation.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListQuery {
    pub(crate) labels: String,
    pub(crate) fields: String,
    pub(crate) shard: String,
    pub(crate) list: ListOptions,
    pub(crate) watch: WatchOptions,
}

impl Query {
    /// Parses the query of a URL.
    pub(crate) fn parse(query: Option<&str>) -> Query {
        let mut found = BTreeMap::<String, Vec<String>>::new();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            found.entry(name.into_owned()).or_default().push(value.into_owned());
        }
        Query(found)
    }

    /// Returns the first value of a parameter, or an empty text if it is missing.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(|values| values.first()).map_or("", String::as_str)
    }

    fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns a boolean parameter; `None` if it is missing.
    pub(crate) fn boolean(&self, name: &str) -> Option<bool> {
        let value = self.0.get(name)?.first()?;
        Some(!(value == "0" || value.eq_ignore_ascii_case("false")))
    }

    /// Returns an integer parameter; `None` if it is missing.
    pub(crate) fn integer(&self, name: &str) -> Result<Option<i64>, Status> {
        let Some(value) = self.0.get(name).and_then(|values| values.first()) else { return Ok(None) };
        parse_integer(value).map(Some).map_err(Status::bad_request)
    }

    /// Returns the parameters of a list, a watch or a collection deletion.
    pub(crate) fn list(&self) -> Result<ListQuery, Status> {
        let timeout = self.integer("timeoutSeconds")?.and_then(|it| u64::try_from(it).ok());
        let limit = self.integer("limit")?.unwrap_or_default();
        let text = |name: &str| self.text(name).to_owned();
        Ok(ListQuery {
            labels: text("labelSelector"),
            fields: text("fieldSelector"),
            shard: text("shardSelector"),
            list: ListOptions {
                limit: u64::try_from(limit).unwrap_or_default(),
                continue_: text("continue"),
                resource_version: text("resourceVersion"),
                resource_version_match: text("resourceVersionMatch"),
                send_initial_events: self.boolean("sendInitialEvents"),
            },
            watch: WatchOptions {
                resource_version: text("resourceVersion"),
                resource_version_match: text("resourceVersionMatch"),
                bookmarks: self.boolean("allowWatchBookmarks").unwrap_or_default(),
                send_initial_events: self.boolean("sendInitialEvents"),
                timeout: timeout.map(Duration::from_secs),
            },
        })
    }

    /// Returns the options of a create, an update or a patch. `user_agent` is the default of the field manager.
    pub(crate) fn write(
        &self,
        verb: Verb,
        patch: Option<PatchKind>,
        user_agent: &str,
    ) -> Result<WriteOptions, Status> {
        let manager = self.text("fieldManager");
        let mut causes = Vec::new();
        match patch {
            Some(PatchKind::Apply) if manager.is_empty() => {
                causes.push(required("fieldManager", "is required for apply patch"));
            }
            Some(PatchKind::Json | PatchKind::Merge | PatchKind::Strategic)
                if self.boolean("force").is_some() =>
            {
                causes.push(forbidden("force", "may not be specified for non-apply patch"));
            }
            _ => {}
        }
        check_field_manager(manager, &mut causes);
        check_dry_run(self.all("dryRun"), &mut causes);
        let field_validation = self.field_validation(&mut causes);
        if !causes.is_empty() {
            let kind = match verb {
                Verb::Create => "CreateOptions",
                Verb::Patch => "PatchOptions",
                _ => "UpdateOptions",
            };
            return Err(Status::invalid(META, kind, "", causes));
        }
        Ok(WriteOptions {
            dry_run: !self.all("dryRun").is_empty(),
            field_manager: if manager.is_empty() { manager_of(user_agent) } else { manager.to_owned() },
            field_validation,
            force: self.boolean("force").unwrap_or_default(),
            given: self.given(),
            ..WriteOptions::default()
        })
    }

    /// Returns the options of a write as JSON.
    fn given(&self) -> Value {
        let mut given = json!({});
        if !self.all("dryRun").is_empty() {
            given["dryRun"] = json!(self.all("dryRun"));
        }
        for field in ["fieldManager", "fieldValidation"] {
            if !self.text(field).is_empty() {
                given[field] = json!(self.text(field));
            }
        }
        given
    }

    fn field_validation(&self, causes: &mut Vec<Cause>) -> FieldValidation {
        match self.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                causes.push(not_supported("fieldValidation", &format!("{other:?}"), &supported));
                FieldValidation::Warn
            }
        }
    }

    /// Returns the parameter `timeout`, which every request except a watch accepts. It limits the time that a write
    /// waits for webhooks; the links of a simulation apply it to all requests.
    pub(crate) fn timeout(&self) -> Result<Option<Duration>, Status> {
        let value = self.text("timeout");
        if value.is_empty() {
            return Ok(None);
        }
        go_duration(value).map(Some).map_err(|why| {
            Status::bad_request(format!("invalid timeout specified in the request URL - {why}"))
        })
    }

    /// Returns the parameters as a `DeleteOptions`, for deletions without a body.
    pub(crate) fn delete(&self) -> Result<DeleteBody, Status> {
        Ok(DeleteBody {
            grace_period_seconds: self.integer("gracePeriodSeconds")?,
            orphan_dependents: self.boolean("orphanDependents"),
            propagation_policy: self.0.get("propagationPolicy").and_then(|it| it.first()).cloned(),
            dry_run: self.all("dryRun").to_vec(),
            preconditions: Preconditions {
                uid: Some(self.text("uid")).filter(|uid| !uid.is_empty()).map(str::to_owned),
                resource_version: None,
            },
            ..DeleteBody::default()
        })
    }
}

/// Parses an integer; the error is the message of Go's parser.
fn parse_integer(text: &str) -> Result<i64, String> {
    let complaint = |what| format!("strconv.ParseInt: parsing {text:?}: {what}");
    text.parse::<i64>().map_err(|error| match error.kind() {
        std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => {
            complaint("value out of range")
        }
        _ => complaint("invalid syntax"),
    })
}

/// Returns the first part of the user agent, which is the default of the field manager.
fn manager_of(user_agent: &str) -> String {
    let mut name = String::new();
    let first = user_agent.split('/').next().unwrap_or_default();
    for letter in first.chars().filter(|letter| printable(*letter)) {
        if name.len() + letter.len_utf8() > FIELD_MANAGER_MAX {
            break;
        }
        name.push(letter);
    }
    name
}

fn printable(letter: char) -> bool {
    letter == ' ' || !(letter.is_control() || letter.is_whitespace())
}

fn check_field_manager(manager: &str, causes: &mut Vec<Cause>) {
    if manager.len() > FIELD_MANAGER_MAX {
        let message = format!("Too long: may not be more than {FIELD_MANAGER_MAX} bytes");
        causes.push(cause("FieldValueTooLong", "fieldManager", message));
    }
    for (position, letter) in manager.char_indices().filter(|(_, letter)| !printable(*letter)) {
        let code = u32::from(letter);
        let message =
            format!("Invalid value: {manager:?}: invalid character U+{code:04X} (at position {position})");
        causes.push(cause("FieldValueInvalid", "fieldManager", message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(query: &str) -> Result<ListQuery, String> {
        Query::parse(Some(query)).list().map_err(|status| status.message)
    }

    #[test]
    fn only_zero_and_false_are_false() {
        for (value, expected) in [("0", false), ("FALSE", false), ("", true), ("1", true), ("no", true)] {
            let found = list(&format!("allowWatchBookmarks={value}")).map(|it| it.watch.bookmarks);
            assert_eq!(found, Ok(expected), "{value}");
        }
    }

    #[test]
    fn invalid_numbers_get_upstream_messages() {
        let cases = [
            ("limit=-1", Ok(())),
            ("limit=x", Err("strconv.ParseInt: parsing \"x\": invalid syntax".to_owned())),
            (
                "timeoutSeconds=99999999999999999999",
                Err("strconv.ParseInt: parsing \"99999999999999999999\": value out of range".to_owned()),
            ),
        ];
        for (query, expected) in cases {
            assert_eq!(list(query).map(|_| ()), expected, "{query}");
        }
    }

    #[test]
    fn timeouts_are_go_durations() {
        for good in ["", "0", "10s", "1h2m3.5s", "-1ms", "1500ms"] {
            assert!(Query::parse(Some(&format!("timeout={good}"))).timeout().is_ok(), "{good}");
        }
        for (bad, why) in [
            ("10", "time: missing unit in duration \"10\""),
            ("x", "time: invalid duration \"x\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
        ] {
            let refused = Query::parse(Some(&format!("timeout={bad}"))).timeout();
            let expected = format!("invalid timeout specified in the request URL - {why}");
            assert_eq!(refused.map_err(|it| it.message), Err(expected));
        }
        for (text, millis) in [("1h2m3.5s", 3_723_500), ("1500ms", 1_500), ("-1s", 0), ("0", 0)] {
            assert_eq!(go_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn write_options_are_checked_together() {
        let write = |query: &str, patch| {
            Query::parse(Some(query))
                .write(Verb::Patch, patch, "kubectl/v1.36 (linux)")
                .map_err(|it| it.message)
        };
        let named = write("", Some(PatchKind::Merge)).map(|it| it.field_manager);
        assert_eq!(named, Ok("kubectl".to_owned()));
        let invalid = |why: &str| Some(format!("PatchOptions.meta.k8s.io \"\" is invalid: {why}"));
        assert_eq!(
            write("", Some(PatchKind::Apply)).err(),
            invalid("fieldManager: Required value: is required for apply patch")
        );
        assert_eq!(
            write("force=true", Some(PatchKind::Merge)).err(),
            invalid("force: Forbidden: may not be specified for non-apply patch")
        );
        assert_eq!(
            write("dryRun=Some", Some(PatchKind::Merge)).err(),
            invalid("dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"")
        );
    }
}
