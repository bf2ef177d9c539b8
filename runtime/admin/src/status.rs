//! The endpoints `/statusz` and `/flagz`, in the formats of KEP-4827 and KEP-4828, and `/configz`.
//!
//! The default is plain text for users. JSON is returned only if the client accepts the object by group, version and
//! kind, as upstream requires, so that clients do not depend on the format by accident. Other formats are answered with
//! 406. The text of `/statusz` also lists the leases and shards of this replica, for which the object has no field.
//! Flags are shown as the manager received them; they contain no secrets.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};
use windlass_env::{Env, Instant};

use crate::ownership_report::OwnershipReport;

use crate::pages::{PageHandler, PageRequest, PageResponse, Pages, WeakPages};

/// The emulated Kubernetes version of the built-in controllers.
const EMULATED: &str = "1.36";

/// The API group of the objects.
const GROUP: &str = "config.k8s.io";

/// The API versions, and whether upstream has deprecated them.
const VERSIONS: [(&str, bool); 2] = [("v1beta1", false), ("v1alpha1", true)];

const FOR_PEOPLE: &str =
    "Warning: this page is for users and for debugging; its format can change at any time.";

/// The contents of `/statusz`, `/flagz` and `/configz`.
#[derive(Clone, Debug, Default)]
pub struct ComponentInfo {
    /// The name of the component.
    pub component: String,
    /// The flags and their values, without secrets.
    pub flags: BTreeMap<String, String>,
    /// The configuration in effect, by component, without secrets.
    pub configuration: BTreeMap<String, Value>,
    /// The leases and shards that this replica holds.
    pub ownership: OwnershipReport,
}

/// Adds the endpoints for a process that started now.
pub(crate) fn add(pages: &Pages, env: &Env, about: ComponentInfo) {
    let ComponentInfo { component, flags, configuration, ownership } = about;
    let status =
        Status { env: env.clone(), component: component.clone(), began: env.wall(), since: env.now() };
    let (listed, also) = (pages.downgrade(), pages.downgrade());
    let of = status.clone();
    let object = move |version: &str| of.object(version, also.folders());
    pages.add("/statusz", negotiated("Statusz", move || status.text(&listed, &ownership), object));
    let text = flags_text(&component, &flags);
    let object = move |version: &str| {
        json!({
            "kind": "Flagz",
            "apiVersion": format!("{GROUP}/{version}"),
            "metadata": { "name": component },
            "flags": flags,
        })
    };
    pages.add("/flagz", negotiated("Flagz", move || text.clone(), object));
    let configuration = json!(configuration).to_string();
    pages.add("/configz", Arc::new(move |_| PageResponse::json(configuration.clone())));
}

#[derive(Clone)]
struct Status {
    env: Env,
    component: String,
    began: Timestamp,
    since: Instant,
}

impl Status {
    fn up(&self) -> u64 {
        self.env.now().saturating_duration_since(self.since).as_secs()
    }

    fn text(&self, pages: &WeakPages, ownership: &OwnershipReport) -> String {
        let Self { component, began, .. } = self;
        let up = self.up();
        let held: String = ownership.lines().iter().map(|line| format!("{line}\n")).collect();
        format!(
            "\n{component} statusz\n{FOR_PEOPLE}\n\nStarted: {}\nUp: {} hr {:02} min {:02} sec\n\
             Binary version: {}\nEmulation version: {EMULATED}\n{held}Paths: {}\n",
            began.strftime("%a %b %e %H:%M:%S UTC %Y"),
            up / 3600,
            up / 60 % 60,
            up % 60,
            env!("CARGO_PKG_VERSION"),
            pages.folders().join(" "),
        )
    }

    fn object(&self, version: &str, paths: Vec<String>) -> Value {
        json!({
            "kind": "Statusz",
            "apiVersion": format!("{GROUP}/{version}"),
            "metadata": { "name": self.component },
            "startTime": self.began.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "uptimeSeconds": self.up(),
            // The API requires the field, and there is no Go.
            "goVersion": "",
            "binaryVersion": env!("CARGO_PKG_VERSION"),
            "emulationVersion": EMULATED,
            "paths": paths,
        })
    }
}

fn flags_text(component: &str, flags: &BTreeMap<String, String>) -> String {
    let lines: String = flags.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    format!("\n{component} flagz\n{FOR_PEOPLE}\n\n{lines}")
}

/// Returns an endpoint that responds in the format that the client accepts.
fn negotiated(
    kind: &'static str,
    text: impl Fn() -> String + Send + Sync + 'static,
    object: impl Fn(&str) -> Value + Send + Sync + 'static,
) -> PageHandler {
    Arc::new(move |request: &PageRequest| match StatuszFormat::negotiate(&request.accept, kind) {
        Some(StatuszFormat::Text) => PageResponse::text(text()),
        Some(StatuszFormat::Object { version, deprecated }) => {
            let answer = PageResponse::json(object(version).to_string());
            let warning = "299 - \"This version is deprecated; use v1beta1\"";
            match deprecated {
                true => answer.with(header::WARNING, HeaderValue::from_static(warning)),
                false => answer,
            }
        }
        None => {
            let why =
                format!("not acceptable; use text/plain or application/json;v=v1beta1;g={GROUP};as={kind}");
            PageResponse::error(StatusCode::NOT_ACCEPTABLE, why)
        }
    })
}

#[derive(Debug, PartialEq, Eq)]
enum StatuszFormat {
    Text,
    Object { version: &'static str, deprecated: bool },
}

impl StatuszFormat {
    /// Returns the supported format with the highest weight, the first one among equals.
    fn negotiate(accept: &str, kind: &str) -> Option<Self> {
        if accept.trim().is_empty() {
            return Some(StatuszFormat::Text);
        }
        let mut formats: Vec<(f64, StatuszFormat)> = accept
            .split(',')
            .filter_map(|media_range| StatuszFormat::media_range(media_range, kind))
            .collect();
        formats.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        formats.into_iter().next().map(|(_, form)| form)
    }

    /// Parses one media range and its weight.
    fn media_range(media_range: &str, kind: &str) -> Option<(f64, Self)> {
        let mut parts = media_range.split(';').map(str::trim);
        let media_type = parts.next()?.to_ascii_lowercase();
        let mut given: BTreeMap<&str, &str> = parts.filter_map(|part| part.split_once('=')).collect();
        let weight = given.remove("q").map_or(Some(1.0), |weight| weight.parse::<f64>().ok())?;
        let form = match media_type.as_str() {
            "text/plain" | "text/*" | "*/*" if !given.contains_key("as") => StatuszFormat::Text,
            "application/json" if (given.get("as"), given.get("g")) == (Some(&kind), Some(&GROUP)) => {
                let requested = given.get("v")?;
                let (version, deprecated) = VERSIONS.into_iter().find(|(version, _)| version == requested)?;
                StatuszFormat::Object { version, deprecated }
            }
            _ => return None,
        };
        (weight > 0.0).then_some((weight, form))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // parity: statusz-flagz
    #[test]
    fn statusz_serves_object_by_group_version_kind_and_text_otherwise() {
        let beta = StatuszFormat::Object { version: "v1beta1", deprecated: false };
        let alpha = StatuszFormat::Object { version: "v1alpha1", deprecated: true };
        for (accept, form) in [
            ("", Some(StatuszFormat::Text)),
            ("*/*", Some(StatuszFormat::Text)),
            ("text/plain; charset=utf-8", Some(StatuszFormat::Text)),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Some(StatuszFormat::Text)),
            ("application/json", None),
            ("application/json;as=Statusz", None),
            ("application/json;v=v1;g=config.k8s.io;as=Statusz", None),
            ("application/json;v=v1beta1;g=config.k8s.io;as=Flagz", None),
            ("application/json;v=v1beta1;g=example.com;as=Statusz", None),
            ("application/yaml;v=v1beta1;g=config.k8s.io;as=Statusz", None),
            ("application/json;v=v1beta1;g=config.k8s.io;as=Statusz", Some(beta)),
            ("text/plain;q=0.5, application/json; v=v1alpha1; g=config.k8s.io; as=Statusz", Some(alpha)),
            ("text/plain;q=0", None),
            ("text/html", None),
        ] {
            assert_eq!(StatuszFormat::negotiate(accept, "Statusz"), form, "{accept}");
        }
    }
}
