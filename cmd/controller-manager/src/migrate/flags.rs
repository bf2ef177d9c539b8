//! The command line of a kube-controller-manager.

use std::collections::BTreeMap;

use windlass::controller::Descriptor;
use windlass::manager::ControllerSelection;

use crate::upstream;

/// The name of the component, of its program, of its container, and of its Lease.
pub(super) const UPSTREAM: &str = "kube-controller-manager";

/// The flag that enables and disables controllers.
const CONTROLLERS: &str = "controllers";

/// The flags of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(BTreeMap<String, Vec<String>>);

impl Flags {
    /// Parses `--flag=value` and `--flag value`; other words are ignored. A flag without a value is a switch.
    pub(super) fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let mut flags = BTreeMap::<String, Vec<String>>::new();
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--") else { continue };
            let (flag, value) = match flag.split_once('=') {
                Some((flag, value)) => (flag, value.to_owned()),
                None => match words.next_if(|next| !next.starts_with("--")) {
                    Some(value) => (flag, value.to_owned()),
                    None => (flag, "true".to_owned()),
                },
            };
            flags.entry(flag.replace('_', "-")).or_default().push(value);
        }
        Self(flags)
    }

    /// Returns the value that counts: the last one.
    pub(super) fn value(&self, flag: &str) -> Option<&str> {
        self.0.get(flag)?.last().map(String::as_str)
    }

    /// Returns the entries of `--controllers`; repeated flags are joined.
    pub(super) fn controllers(&self) -> Vec<&str> {
        let lists = self.0.get(CONTROLLERS).into_iter().flatten();
        let entries: Vec<&str> = lists.flat_map(|list| list.split(',')).map(unquoted).collect();
        if entries.is_empty() { vec!["*"] } else { entries }
    }

    /// Returns the entries of `--controllers` that name no controller of kube-controller-manager.
    pub(super) fn unknown_controllers(&self, known: &[Descriptor]) -> Vec<&str> {
        let is_unknown = |entry: &&str| {
            let name = entry.strip_prefix('-').unwrap_or(entry);
            *entry != "*" && canonical(entry, known).is_none() && !upstream::has_controller(name)
        };
        self.controllers().into_iter().filter(is_unknown).collect()
    }

    /// Returns those of `controllers` that the process runs. All controllers of windlass are on by default upstream.
    pub(super) fn enabled(&self, known: &[Descriptor], controllers: &[&'static str]) -> Vec<&'static str> {
        let entries = self.controllers();
        let is_known = |entry: &&&str| **entry == "*" || canonical(entry, known).is_some();
        let selection = ControllerSelection::parse(entries.iter().filter(is_known));
        match selection.resolve(known) {
            Ok(enabled) => controllers.iter().copied().filter(|name| enabled.contains(name)).collect(),
            // Every entry names a known controller, so none is rejected. Otherwise all would count as enabled.
            Err(_) => controllers.to_vec(),
        }
    }

    /// Returns the value of `--controllers` with which the process runs none of `controllers`.
    pub(super) fn controllers_without(&self, known: &[Descriptor], controllers: &[&'static str]) -> String {
        let entries = self.controllers();
        let is_moved = |entry: &&str| canonical(entry, known).is_some_and(|name| controllers.contains(&name));
        let has_all = entries.contains(&"*");
        let kept = entries.into_iter().filter(|entry| !is_moved(entry)).map(str::to_owned);
        let disabled = controllers.iter().filter(|_| has_all).map(|name| format!("-{name}"));
        kept.chain(disabled).collect::<Vec<_>>().join(",")
    }
}

/// Removes the quotes of an entry: the list is a line of CSV.
fn unquoted(entry: &str) -> &str {
    let entry = entry.trim();
    entry.strip_prefix('"').and_then(|entry| entry.strip_suffix('"')).unwrap_or(entry)
}

/// Returns the canonical name in an entry of `--controllers`, if the controller is known.
fn canonical(entry: &str, known: &[Descriptor]) -> Option<&'static str> {
    let name = entry.strip_prefix('-').unwrap_or(entry);
    known.iter().find(|one| one.name == name || one.aliases.contains(&name)).map(|one| one.name)
}
