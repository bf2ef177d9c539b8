//! The selection of controllers: the rules of `--controllers`.
//!
//! The list is read in order, and the first entry that names a controller decides: `name` enables it, `-name` disables
//! it. A controller without an entry is enabled if the list contains `*` and the controller is enabled by default.
//! Aliases are equivalent to names. A part runs if its controller runs; no entry can name a part. An unknown name is an
//! error, because it is a typing mistake or names a controller that a user depends on.

use std::str::FromStr;

use windlass_controller::Descriptor;

use crate::spelling;

/// The `--controllers` list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerSelection(Vec<Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    /// `*`
    EveryDefault,
    /// `name`
    On(String),
    /// `-name`
    Off(String),
}

impl Default for ControllerSelection {
    /// Selects every controller that is enabled by default.
    fn default() -> Self {
        Self(vec![Entry::EveryDefault])
    }
}

impl<S: AsRef<str>> FromIterator<S> for ControllerSelection {
    /// Parses entries in user syntax. Spaces around an entry and empty entries are ignored.
    fn from_iter<I: IntoIterator<Item = S>>(entries: I) -> Self {
        let entry = |entry: S| match entry.as_ref().trim() {
            "" => None,
            "*" => Some(Entry::EveryDefault),
            text => Some(match text.strip_prefix('-') {
                Some(name) => Entry::Off(name.to_owned()),
                None => Entry::On(text.to_owned()),
            }),
        };
        Self(entries.into_iter().filter_map(entry).collect())
    }
}

impl FromStr for ControllerSelection {
    type Err = std::convert::Infallible;

    /// Parses a comma-separated list.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.split(',').collect())
    }
}

impl ControllerSelection {
    /// Parses entries in user syntax: `["*", "-ttl-controller"]`.
    pub fn parse<S: AsRef<str>>(entries: impl IntoIterator<Item = S>) -> Self {
        entries.into_iter().collect()
    }

    /// Returns the entries in user syntax.
    pub(crate) fn entries(&self) -> Vec<String> {
        let written = |entry: &Entry| match entry {
            Entry::EveryDefault => "*".to_owned(),
            Entry::On(name) => name.clone(),
            Entry::Off(name) => format!("-{name}"),
        };
        self.0.iter().map(written).collect()
    }

    /// Returns the names of the controllers in `known` that run, in the order of `known`.
    ///
    /// # Errors
    /// When an entry names an unknown controller.
    pub fn resolve(&self, known: &[Descriptor]) -> Result<Vec<&'static str>, UnknownController> {
        let wholes: Vec<_> = known.iter().filter(|one| one.part_of.is_none()).copied().collect();
        let entries: Vec<Resolved> =
            self.0.iter().map(|entry| resolve(entry, &wholes)).collect::<Result<_, _>>()?;
        let is_selected = |one: &Descriptor| {
            let whole = one.part_of.unwrap_or(one.name);
            wholes.iter().any(|controller| controller.name == whole && is_on(controller, &entries))
        };
        Ok(known.iter().filter(|one| is_selected(one)).map(|one| one.name).collect())
    }
}

/// An entry with a canonical name.
#[derive(Copy, Clone)]
enum Resolved {
    EveryDefault,
    On(&'static str),
    Off(&'static str),
}

fn resolve(entry: &Entry, known: &[Descriptor]) -> Result<Resolved, UnknownController> {
    Ok(match entry {
        Entry::EveryDefault => Resolved::EveryDefault,
        Entry::On(name) => Resolved::On(canonical(name, known)?),
        Entry::Off(name) => Resolved::Off(canonical(name, known)?),
    })
}

/// Returns the canonical name of `name`, which is a name or an alias.
pub(crate) fn canonical(name: &str, known: &[Descriptor]) -> Result<&'static str, UnknownController> {
    let named = known.iter().find(|one| one.name == name || one.aliases.contains(&name));
    named
        .map(|one| one.name)
        .ok_or_else(|| UnknownController { name: name.to_owned(), closest: closest(name, known) })
}

fn is_on(controller: &Descriptor, entries: &[Resolved]) -> bool {
    let explicit = entries.iter().find_map(|entry| match entry {
        Resolved::On(name) if *name == controller.name => Some(true),
        Resolved::Off(name) if *name == controller.name => Some(false),
        _ => None,
    });
    let by_default =
        || controller.enabled_by_default && entries.iter().any(|e| matches!(e, Resolved::EveryDefault));
    explicit.unwrap_or_else(by_default)
}

/// The error for an entry of `--controllers` that names no known controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not in the list of known controllers{}", hint(.closest))]
pub struct UnknownController {
    /// The name in the entry, without a leading `-`.
    pub name: String,
    /// The most similar known name, if there is one.
    pub closest: Option<&'static str>,
}

fn hint(closest: &Option<&'static str>) -> String {
    closest.map_or_else(String::new, |closest| format!("; did you mean {closest:?}?"))
}

/// Returns the canonical name of the controller whose name or alias is most similar.
fn closest(name: &str, known: &[Descriptor]) -> Option<&'static str> {
    let spellings = || {
        known.iter().flat_map(|one| {
            std::iter::once(one.name).chain(one.aliases.iter().copied()).map(|spelling| (spelling, one.name))
        })
    };
    let near = spelling::closest(name, spellings().map(|(spelling, _)| spelling))?;
    spellings().find(|(spelling, _)| *spelling == near).map(|(_, canonical)| canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Descriptor; 3] = [
        Descriptor::new("endpoints-controller").with_aliases(&["endpoint"]),
        Descriptor::new("replicaset-controller").with_aliases(&["replicaset"]),
        Descriptor::new("token-cleaner-controller").with_aliases(&["tokencleaner"]).disabled_by_default(),
    ];

    #[test]
    fn entries_select_the_expected_controllers() {
        let (endpoints, sets, tokens) =
            ("endpoints-controller", "replicaset-controller", "token-cleaner-controller");
        let table: [(&str, &[&str]); 11] = [
            ("*", &[endpoints, sets]),
            ("", &[]),
            ("*,-replicaset-controller", &[endpoints]),
            ("-replicaset-controller,*", &[endpoints]),
            ("*,-replicaset", &[endpoints]),
            ("*,token-cleaner-controller", &[endpoints, sets, tokens]),
            ("tokencleaner", &[tokens]),
            ("replicaset,-replicaset-controller", &[sets]),
            ("-replicaset-controller,replicaset", &[]),
            ("-endpoint", &[]),
            (" endpoint , replicaset ", &[endpoints, sets]),
        ];
        for (text, expected) in table {
            let selection: ControllerSelection = text.parse().expect("parsing cannot fail");
            assert_eq!(selection.resolve(&KNOWN).as_deref(), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn part_runs_if_its_controller_runs_and_cannot_be_named() {
        let part = KNOWN[2].part("token-cleaner-leftovers");
        let known = [KNOWN[0], KNOWN[2], part];
        let selected = |text: &str| ControllerSelection::parse(text.split(',')).resolve(&known);
        assert_eq!(selected("*").as_deref(), Ok(&[KNOWN[0].name][..]));
        assert_eq!(selected("tokencleaner").as_deref(), Ok(&[KNOWN[2].name, part.name][..]));
        assert_eq!(selected("tokencleaner,-token-cleaner-leftovers").unwrap_err().name, part.name);
    }

    #[test]
    fn unknown_name_error_suggests_closest_known_name() {
        let rejected = |text: &str| ControllerSelection::parse([text]).resolve(&KNOWN).unwrap_err();
        let error = rejected("-replicasets-controler");
        assert_eq!(error.closest, Some("replicaset-controller"));
        assert_eq!(
            error.to_string(),
            "\"replicasets-controler\" is not in the list of known controllers; did you mean \"replicaset-controller\"?"
        );
        assert_eq!(
            rejected("endpont").closest,
            Some("endpoints-controller"),
            "an alias leads to its controller"
        );
        assert_eq!(rejected("foo").to_string(), "\"foo\" is not in the list of known controllers");
        assert_eq!(rejected("-*").name, "*");
    }
}
