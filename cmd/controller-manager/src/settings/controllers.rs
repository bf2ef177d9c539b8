//! The list of `--controllers`.
//!
//! Guarantees: every entry names a controller of this binary, and at least one controller runs.

use serde::Serialize;
use windlass::controller::{Descriptor, Registration};
use windlass::manager::ControllerSelection;
use windlass_controllers::ControllerOptions;

use super::invalid::InvalidValue;
use super::value::{Value, ValueShape, entries};
use crate::upstream;

/// Entries as [`ControllerSelection`] reads them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Controllers(pub(crate) Vec<String>);

impl Value for Controllers {
    const SHAPE: ValueShape = ValueShape::List;

    fn parse(text: &str) -> Result<Self, InvalidValue> {
        let known = built_in();
        let all = || names(known.iter());
        match ControllerSelection::parse(entries(text)).resolve(&known) {
            Ok(selected) if selected.is_empty() => {
                Err(InvalidValue::new("no controller would run", format!("write '*' for all of {}", all())))
            }
            Ok(_) => Ok(Self(entries(text).map(str::to_owned).collect())),
            Err(unknown) if upstream::has_controller(&unknown.name) => {
                let problem = "is a kube-controller-manager controller that windlass does not implement yet";
                Err(InvalidValue::new(format!("{:?} {problem}", unknown.name), "leave it out"))
            }
            Err(unknown) => {
                let remedy = match unknown.closest {
                    Some(name) => format!("did you mean {name}? The controllers are {}", all()),
                    None => format!("write one of {}", all()),
                };
                Err(InvalidValue::new(format!("{:?} is not a controller", unknown.name), remedy))
            }
        }
    }

    fn choices() -> Vec<String> {
        let known = built_in();
        let disabled = names(known.iter().filter(|one| !one.enabled_by_default));
        vec![
            format!("All controllers: {}", names(known.iter())),
            format!("Disabled by default: {}", if disabled.is_empty() { "none" } else { &disabled }),
        ]
    }
}

/// Returns the controllers of this binary, without the parts, which follow their controllers.
pub(crate) fn built_in() -> Vec<Descriptor> {
    windlass_controllers::registrations(&ControllerOptions::default())
        .iter()
        .map(Registration::descriptor)
        .filter(|one| one.part_of.is_none())
        .collect()
}

fn names<'a>(controllers: impl Iterator<Item = &'a Descriptor>) -> String {
    controllers.map(|one| one.name).collect::<Vec<_>>().join(", ")
}
