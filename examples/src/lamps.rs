//! Custom resource in two versions: webhooks convert, default and validate a `Lamp`.
//!
//! `v1` has one field for all colors, `v2` a list. The API server stores `v2`, and the controller uses it. Clients use
//! either version: the API server calls the conversion webhook, and the other webhooks see `v2` only.

use kube::core::PartialObjectMeta;
use windlass::prelude::*;
use windlass::webhook::{AdmissionError, Conversion, Hook, Operation, Review, Validator, Webhooks, deny};

/// The first version: `color: red+blue`.
pub mod v1 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::LampStatus;

    /// Desired state of a lamp.
    #[derive(Clone, Debug, PartialEq, CustomResource, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Lamp", namespaced, status = "LampStatus")]
    pub struct LampSpec {
        /// Colors, separated by `+`.
        #[serde(default)]
        pub color: String,
        /// Brightness in percent.
        pub brightness: Option<i32>,
    }
}

/// The second version, which is stored: `colors: [red, blue]`.
pub mod v2 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::LampStatus;

    /// Desired state of a lamp.
    #[derive(Clone, Debug, PartialEq, CustomResource, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v2", kind = "Lamp", namespaced, status = "LampStatus")]
    pub struct LampSpec {
        /// Colors.
        #[serde(default)]
        pub colors: Vec<String>,
        /// Brightness in percent.
        pub brightness: Option<i32>,
    }
}

/// Observed state of a lamp, the same in both versions.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
pub struct LampStatus {
    /// Number of colors that are lit.
    #[serde(default)]
    pub lit: i32,
}

impl From<v1::Lamp> for v2::Lamp {
    fn from(v1::Lamp { metadata, spec, status }: v1::Lamp) -> Self {
        let colors = spec.color.split('+').filter(|color| !color.is_empty()).map(str::to_owned).collect();
        Self { metadata, spec: v2::LampSpec { colors, brightness: spec.brightness }, status }
    }
}

impl From<v2::Lamp> for v1::Lamp {
    fn from(v2::Lamp { metadata, spec, status }: v2::Lamp) -> Self {
        let color = spec.colors.join("+");
        Self { metadata, spec: v1::LampSpec { color, brightness: spec.brightness }, status }
    }
}

/// Sets missing fields.
const DEFAULTS: Hook = Hook::new("defaults.lamps.example.com");

fn set_defaults(_: &Review<v2::Lamp>, mut lamp: v2::Lamp) -> Result<v2::Lamp, AdmissionError> {
    lamp.spec.brightness.get_or_insert(50);
    if lamp.spec.colors.is_empty() {
        lamp.spec.colors.push("white".to_owned());
    }
    Ok(lamp)
}

/// Denies lamps that cannot be lit.
const LIMITS: Hook = Hook::new("limits.lamps.example.com");

fn check_limits(review: &Review<v2::Lamp>) -> Result<(), AdmissionError> {
    let Some(lamp) = review.object() else { return Ok(()) };
    let brightness = lamp.spec.brightness.unwrap_or_default();
    if !(1..=100).contains(&brightness) {
        return Err(deny("the lamp cannot be lit").at("spec.brightness", "must be between 1 and 100"));
    }
    // `v1` could not represent it.
    match lamp.spec.colors.iter().position(|color| color.contains('+')) {
        Some(index) => Err(deny("a color is invalid").at(&format!("spec.colors[{index}]"), "contains +")),
        None => Ok(()),
    }
}

/// Denies new lamps in a namespace that has enough of them.
#[derive(Debug)]
pub struct Quota {
    lamps: Lister<PartialObjectMeta>,
    max_lamps: usize,
}

impl Validator for Quota {
    const HOOK: Hook = Hook::new("quota.lamps.example.com").on(&[Operation::Create]);
    type Object = v2::Lamp;
    type Config = usize;

    fn setup(setup: &mut Setup, max_lamps: &usize) -> Result<Self, SetupError> {
        // Only metadata, so that lamps with an undecodable spec count too.
        let lamps = setup.watch_metadata(ResourceKind::of::<v2::Lamp>()).lister();
        Ok(Self { lamps, max_lamps: *max_lamps })
    }

    async fn validate(&self, review: &Review<v2::Lamp>) -> Result<(), AdmissionError> {
        let namespace = review.namespace().unwrap_or_default();
        let present = self.lamps.list_namespace(namespace).len();
        if present >= self.max_lamps {
            return Err(deny(format!("the namespace {namespace} has {present} lamps already")));
        }
        if present + 1 == self.max_lamps {
            review.warn("this is the last lamp for this namespace");
        }
        Ok(())
    }
}

/// Returns the webhooks of lamps, of which each namespace can have `max_lamps`.
pub fn webhooks(max_lamps: usize) -> Webhooks {
    Webhooks::new()
        .converts(Conversion::hub::<v2::Lamp>().spoke::<v1::Lamp>())
        .mutates::<v2::Lamp>(DEFAULTS, set_defaults)
        .validates::<v2::Lamp>(LIMITS, check_limits)
        .validator::<Quota>(max_lamps)
}

/// Reports how many colors of a lamp are lit.
#[derive(Debug)]
pub struct LampController {
    lamps: Lister<v2::Lamp>,
    lamp: Writer<v2::Lamp>,
}

impl Controller for LampController {
    const NAME: &'static str = "lamp-controller";
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        Ok(Self {
            lamps: setup.primary::<v2::Lamp>().lister(),
            lamp: setup.writer::<v2::Lamp>().patch_status().build(),
        })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let Some(lamp) = self.lamps.get(key)? else { return Ok(Outcome::Done) };
        let lit = i32::try_from(lamp.spec.colors.len()).unwrap_or(i32::MAX);
        let report = |lamp: &mut v2::Lamp| lamp.status.get_or_insert_default().lit = lit;
        self.lamp.update_status(cx, &lamp, report).await?;
        Ok(Outcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use windlass::webhook::check_round_trip;

    use super::*;

    #[test]
    fn lamps_survive_the_way_to_v1_and_back() {
        let lamp = |colors: &[&str], brightness| {
            let colors = colors.iter().map(ToString::to_string).collect();
            v2::Lamp::new("hall", v2::LampSpec { colors, brightness })
        };
        let cases = [lamp(&[], None), lamp(&["red"], Some(5)), lamp(&["red", "blue"], None)];
        check_round_trip::<v2::Lamp, v1::Lamp>(cases).expect("nothing is lost");
    }
}
