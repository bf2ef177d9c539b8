//! What values there are: how each is read, from wherever it was written, and how it is written into a file.
//!
//! Guarantees: what is written is read again as the same value; a refusal says what is wrong and what to write instead.

use std::fmt::Debug;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use serde_json::{Value, json};
use windlass::client::ClientOptions;

use super::raw::{Raw, Word, Wrong, quoted, shown};
use crate::duration;

/// What a value looks like in a file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `true` or `false`.
    Switch,
    /// A number.
    Number,
    /// A text.
    Text,
    /// Several texts.
    List,
    /// `true` or `false` for each of several names.
    Switches,
}

/// A kind of value.
pub(crate) trait Kind: Clone + Debug + PartialEq + Sized {
    /// What it looks like in a file.
    const SHAPE: Shape;

    /// Reads a value of that shape.
    fn read(raw: &Raw) -> Result<Self, Wrong>;

    /// The value as it stands in a file.
    fn written(&self) -> Value;

    /// What this value of a flag comes to where a file has one, too: itself.
    #[must_use]
    fn over(self, _file: &Self) -> Self {
        self
    }
}

impl Kind for bool {
    const SHAPE: Shape = Shape::Switch;

    fn read(raw: &Raw) -> Result<Self, Wrong> {
        boolean(raw.text()).ok_or_else(|| Wrong::new("neither true nor false", "write true or false"))
    }

    fn written(&self) -> Value {
        json!(self)
    }
}

/// A boolean as Go reads one.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// A whole number within bounds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Whole<const LEAST: u32, const MOST: u32>(pub(crate) u32);

/// How many of a kind are worked on at once. Ten thousand tasks are cheap; more is a slip of the finger.
pub(crate) type Workers = Whole<1, 10_000>;

impl<const LEAST: u32, const MOST: u32> Kind for Whole<LEAST, MOST> {
    const SHAPE: Shape = Shape::Number;

    fn read(raw: &Raw) -> Result<Self, Wrong> {
        let remedy = format!("write a number from {LEAST} to {MOST}");
        let text = raw.text();
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Wrong::new("not a whole number", remedy));
        }
        // What is no number now has too many digits, or a sign.
        let number = text.parse().ok().filter(|number| (LEAST..=MOST).contains(number));
        number.map(Self).ok_or_else(|| Wrong::new("out of range", remedy))
    }

    fn written(&self) -> Value {
        json!(self.0)
    }
}

/// A rate that a client can keep, or one below zero for no limit.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Rate(pub(crate) f64);

impl Kind for Rate {
    const SHAPE: Shape = Shape::Number;

    fn read(raw: &Raw) -> Result<Self, Wrong> {
        let refuse = |problem| Wrong::new(problem, "write a rate like 20 or 0.5, or -1 for no limit");
        let (least, most) = (ClientOptions::LEAST_QPS, ClientOptions::MOST_QPS);
        match raw.text().parse::<f64>() {
            Ok(0.0) => Err(refuse("no request would ever be sent")),
            Ok(rate) if rate.is_finite() && (rate < 0.0 || (least..=most).contains(&rate)) => Ok(Self(rate)),
            Ok(rate) if rate.is_finite() => {
                let problem = "out of range";
                Err(Wrong::new(problem, format!("write a rate from {least} to {most}, or -1 for no limit")))
            }
            _ => Err(refuse("not a number")),
        }
    }

    fn written(&self) -> Value {
        // A number without a fraction is written without one.
        format!("{}", self.0).parse().map_or_else(|_| json!(self.0), Value::Number)
    }
}

/// A time that passes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Period(pub(crate) Duration);

impl Kind for Period {
    const SHAPE: Shape = Shape::Text;

    fn read(raw: &Raw) -> Result<Self, Wrong> {
        duration::parse(raw.text()).map(Self).map_err(|problem| {
            // It may quote all of a long value.
            let problem = shown(&format!("not a duration, {problem}"));
            Wrong::new(problem, "write one like 15s, 1m30s, 500ms or 0s")
        })
    }

    fn written(&self) -> Value {
        Value::String(duration::format(self.0))
    }
}

/// The path of a file or folder; empty for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilePath(pub(crate) Option<PathBuf>);

impl Kind for FilePath {
    const SHAPE: Shape = Shape::Text;

    fn read(raw: &Raw) -> Result<Self, Wrong> {
        let text = raw.text();
        if text.contains('\0') || (!text.is_empty() && text.trim().is_empty()) {
            return Err(Wrong::new("not a path", "write one like /etc/windlass/file, or nothing"));
        }
        Ok(Self((!text.is_empty()).then(|| PathBuf::from(text))))
    }

    fn written(&self) -> Value {
        // Read from text, so nothing is lost.
        json!(self.0.as_ref().map_or_else(Default::default, |path| path.to_string_lossy()))
    }
}

/// The address of a server; empty for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server(pub(crate) Option<String>);

impl Kind for Server {
    const SHAPE: Shape = Shape::Text;

    fn read(raw: &Raw) -> Result<Self, Wrong> {
        let text = raw.text();
        if text.is_empty() {
            return Ok(Self(None));
        }
        if text.contains('@') {
            // It would show up wherever the address does, and is not used for anything.
            let problem = "an address must not hold a name or password";
            return Err(Wrong::secret(
                problem,
                "write https://host:port, and name the user in the kubeconfig",
            ));
        }
        let uri = text.parse::<Uri>().ok();
        let is_server = uri.is_some_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
        });
        if is_server {
            return Ok(Self(Some(text.to_owned())));
        }
        Err(Wrong::new("not the address of a server", "write https://host:port"))
    }

    fn written(&self) -> Value {
        json!(self.0.as_deref().unwrap_or_default())
    }
}

/// A name the API server accepts: lower-case letters, digits, dashes and dots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectName(pub(crate) String);

impl ObjectName {
    /// Whether this is one.
    pub(crate) fn accepts(name: &str) -> bool {
        let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        (1..=253).contains(&name.len())
            && name.chars().all(|c| alphanumeric(c) || c == '-' || c == '.')
            && name.starts_with(alphanumeric)
            && name.ends_with(alphanumeric)
    }
}

impl Kind for ObjectName {
    const SHAPE: Shape = Shape::Text;

    fn read(raw: &Raw) -> Result<Self, Wrong> {
        if Self::accepts(raw.text()) {
            return Ok(Self(raw.text().to_owned()));
        }
        Err(Wrong::new("not a name Kubernetes accepts", "write one like windlass"))
    }

    fn written(&self) -> Value {
        json!(self.0)
    }
}

/// The kind of object that holds the lock: there is one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lock;

impl Kind for Lock {
    const SHAPE: Shape = Shape::Text;

    fn read(raw: &Raw) -> Result<Self, Wrong> {
        match raw.text() {
            "leases" => Ok(Self),
            _ => Err(Wrong::new("not a kind of lock", "write leases")),
        }
    }

    fn written(&self) -> Value {
        json!("leases")
    }
}

/// The form of a log line.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For machines.
    Json,
}

impl Kind for Format {
    const SHAPE: Shape = Shape::Text;

    fn read(raw: &Raw) -> Result<Self, Wrong> {
        match raw.text() {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(Wrong::new("not a format", "write text or json")),
        }
    }

    fn written(&self) -> Value {
        match self {
            Self::Text => json!("text"),
            Self::Json => json!("json"),
        }
    }
}

/// The address of an interface of this machine.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address(pub(crate) IpAddr);

impl Kind for Address {
    const SHAPE: Shape = Shape::Text;

    fn read(raw: &Raw) -> Result<Self, Wrong> {
        let address = raw.text().parse().map(Self);
        address.map_err(|_| Wrong::new("not an IP address", "write one like 127.0.0.1 or ::1"))
    }

    fn written(&self) -> Value {
        json!(self.0.to_string())
    }
}

/// Names, each of which means something to whoever reads the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names(pub(crate) Vec<Word>);

impl Kind for Names {
    const SHAPE: Shape = Shape::List;

    fn read(raw: &Raw) -> Result<Self, Wrong> {
        // As people write lists: with spaces around entries, and after the last comma.
        let words = raw.words().iter().map(Word::trimmed).filter(|word| !word.text.is_empty());
        Ok(Self(words.collect()))
    }

    fn written(&self) -> Value {
        json!(self.0.iter().map(|word| &word.text).collect::<Vec<_>>())
    }
}

/// Paths of an HTTP server, whose last character may be `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UrlPaths(pub(crate) Vec<String>);

impl Kind for UrlPaths {
    const SHAPE: Shape = Shape::List;

    fn read(raw: &Raw) -> Result<Self, Wrong> {
        let legal = |path: &str| {
            let stem = path.strip_suffix('*').unwrap_or(path);
            path.starts_with('/')
                && stem
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'*' | b'?' | b'#' | b','))
        };
        match raw.words().iter().find(|word| !legal(&word.text)) {
            None => Ok(Self(raw.words().iter().map(|word| word.text.clone()).collect())),
            Some(word) => {
                let problem = format!("{} is not a path", quoted(&word.text));
                Err(Wrong::new(problem, "write paths like /healthz, or /healthz/* for all below it").at(word))
            }
        }
    }

    fn written(&self) -> Value {
        json!(self.0)
    }
}

/// Names that are switched on and off, each once: the last word about a name counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Switches(pub(crate) Vec<(Word, bool)>);

impl Kind for Switches {
    const SHAPE: Shape = Shape::Switches;

    fn read(raw: &Raw) -> Result<Self, Wrong> {
        let mut switches: Vec<(Word, bool)> = Vec::new();
        for (name, word) in raw.named() {
            let Some(on) = boolean(&word.text) else {
                let problem = format!("{} is neither true nor false", quoted(&word.text));
                return Err(Wrong::new(problem, "write Name=true or Name=false").at(word));
            };
            // Upstream's components may be named before a gate, and this is the only one.
            let text = name.text.trim();
            let text = text.strip_prefix("kube:").unwrap_or(text).trim().to_owned();
            let name = Word { text, place: name.place };
            switches.retain(|(before, _)| *before != name);
            switches.push((name, on));
        }
        Ok(Self(switches))
    }

    fn written(&self) -> Value {
        self.0
            .iter()
            .map(|(name, on)| (name.text.clone(), json!(on)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// Name by name.
    fn over(self, file: &Self) -> Self {
        let named = |name: &Word| self.0.iter().any(|(own, _)| own == name);
        let rest = file.0.iter().filter(|(name, _)| !named(name)).cloned().collect::<Vec<_>>();
        Self(rest.into_iter().chain(self.0).collect())
    }
}

/// Of a word that is no `Name=true`.
pub(crate) fn malformed_switch(word: &Word) -> Wrong {
    let problem = format!("{} is not of the form Name=true or Name=false", quoted(&word.text));
    Wrong::new(problem, "write Name=true or Name=false").at(word)
}
