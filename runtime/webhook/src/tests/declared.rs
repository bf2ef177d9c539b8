//! Tests of the declarations of webhooks.

use windlass_controller::Registration;
use windlass_object::Verb;

use super::*;
use crate::{AdmissionError, Operation, Review, SideEffects, Validator};

fn fault(webhooks: &Webhooks) -> String {
    set_up(webhooks).err().expect("an error").to_string()
}

#[test]
fn contradictory_webhook_fails_setup() {
    let twice =
        Webhooks::new().validates::<ConfigMap>(MAPS, |_| Ok(())).mutates::<ConfigMap>(MAPS, |_, map| Ok(map));
    assert!(fault(&twice).contains("declared twice"));
    let deleting = Webhooks::new().mutates::<ConfigMap>(MAPS.on(&[Operation::Delete]), |_, map| Ok(map));
    assert!(fault(&deleting).contains("Operation::Delete"));
    let unnamed = Webhooks::new().validates::<ConfigMap>(Hook::new("maps"), |_| Ok(()));
    assert!(fault(&unnamed).contains("three segments"));
}

/// Declares a write.
struct Writing<const ALLOWED: bool>;

impl<const ALLOWED: bool> Validator for Writing<ALLOWED> {
    const HOOK: Hook = match ALLOWED {
        true => MAPS.side_effects(SideEffects::NoneOnDryRun),
        false => MAPS,
    };
    type Object = ConfigMap;
    type Config = ();

    fn setup(setup: &mut Setup, (): &()) -> Result<Self, SetupError> {
        setup.writer::<ConfigMap>().create().build();
        Ok(Self)
    }

    async fn validate(&self, _: &Review<ConfigMap>) -> Result<(), AdmissionError> {
        Ok(())
    }
}

#[test]
fn webhook_with_writer_must_declare_side_effects() {
    assert!(fault(&Webhooks::new().validator::<Writing<false>>(())).contains("SideEffects::NoneOnDryRun"));
    assert!(set_up(&Webhooks::new().validator::<Writing<true>>(())).is_ok());
}

#[test]
fn declaration_contains_webhooks_and_named_rules_of_rotation() {
    let webhooks = Webhooks::new()
        .validates::<ConfigMap>(MAPS, |_| Ok(()))
        .mutates::<ConfigMap>(Hook::new("defaults.example.com"), |_, map| Ok(map));
    let declaration = Registration::from(webhooks).declaration(&Env::virtual_time(1)).expect("declared");
    let admissions: Vec<_> =
        declaration.admissions.iter().map(|it| (it.webhook.name.as_str(), it.is_mutating)).collect();
    assert_eq!(admissions, [(MAPS_NAME, false), ("defaults.example.com", true)]);
    let rules: Vec<_> = declaration
        .named_rules
        .iter()
        .map(|it| (it.rule.resource.as_ref(), it.names[0].as_str(), it.in_own_namespace))
        .collect();
    let expected = [
        ("secrets", "windlass-webhook-certificates", true),
        ("validatingwebhookconfigurations", "windlass", false),
        ("mutatingwebhookconfigurations", "windlass", false),
    ];
    assert_eq!(rules, expected);
    assert_eq!(declaration.rules, [], "no other Secret can be read, and no Event is recorded");
    assert!(declaration.named_rules[0].rule.verbs.contains(&Verb::Update));
}
