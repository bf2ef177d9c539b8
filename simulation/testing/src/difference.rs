//! The difference between two cluster states, printed by object and field.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

/// Maximum number of printed objects of each sign.
const SHOWN: usize = 4;

/// Difference between two states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Objects that only the first state contains.
    pub only_here: Vec<String>,
    /// Objects that only the second state contains.
    pub only_there: Vec<String>,
}

impl Difference {
    /// Returns whether the states are equal.
    pub fn is_empty(&self) -> bool {
        self.only_here.is_empty() && self.only_there.is_empty()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut changed, mut only_here) = (Vec::new(), Vec::new());
        let mut only_there = self.only_there.clone();
        for here in &self.only_here {
            match take_namesake(&mut only_there, here) {
                Some(there) => changed.push(changes_of(here, &there)),
                None => only_here.push(here.clone()),
            }
        }
        for (sign, objects) in [('~', changed), ('+', only_here), ('-', only_there)] {
            objects.iter().take(SHOWN).try_for_each(|object| writeln!(f, "  {sign} {object}"))?;
            if objects.len() > SHOWN {
                writeln!(f, "  {sign} and {} more", objects.len() - SHOWN)?;
            }
        }
        Ok(())
    }
}

/// Removes and returns the object with the kind, namespace and name of `object`.
fn take_namesake(objects: &mut Vec<String>, object: &str) -> Option<String> {
    let name = name_of(&parsed(object))?;
    let at = objects.iter().position(|other| name_of(&parsed(other)).as_ref() == Some(&name))?;
    Some(objects.remove(at))
}

/// Returns kind, namespace and name of an object.
fn name_of(object: &Value) -> Option<String> {
    let metadata = &object["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    Some(format!("{} {namespace}/{}", object["kind"].as_str()?, metadata["name"].as_str()?))
}

/// Returns the name of an object and the fields that differ.
fn changes_of(here: &str, there: &str) -> String {
    let (here, there) = (parsed(here), parsed(there));
    let mut changes = Vec::new();
    collect_changes("", &here, &there, &mut changes);
    format!("{}: {}", name_of(&here).unwrap_or_default(), changes.join("; "))
}

fn collect_changes(path: &str, here: &Value, there: &Value, changes: &mut Vec<String>) {
    match (here, there) {
        _ if here == there => {}
        (Value::Object(one), Value::Object(other)) => {
            for field in one.keys().chain(other.keys()).collect::<BTreeSet<_>>() {
                let dot = if path.is_empty() { "" } else { "." };
                collect_changes(&format!("{path}{dot}{field}"), &here[field], &there[field], changes);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (at, (one, other)) in one.iter().zip(other).enumerate() {
                collect_changes(&format!("{path}[{at}]"), one, other, changes);
            }
        }
        _ => changes.push(format!("{path}: {} here, {} there", shown(here), shown(there))),
    }
}

fn shown(value: &Value) -> String {
    if value.is_null() { "absent".to_owned() } else { value.to_string() }
}

/// Parses an object of a state, which contains objects as JSON texts.
fn parsed(object: &str) -> Value {
    serde_json::from_str(object).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(name: &str, spec: &Value) -> String {
        json!({ "kind": "Service", "metadata": { "name": name, "namespace": "shop" }, "spec": spec })
            .to_string()
    }

    #[test]
    fn changed_object_is_printed_by_its_changed_fields() {
        let difference = Difference {
            only_here: vec![service(
                "web",
                &json!({ "ports": [{ "name": "http", "port": 80 }], "type": "A" }),
            )],
            only_there: vec![service(
                "web",
                &json!({ "ports": [{ "name": "http", "port": 81 }], "sessions": 1 }),
            )],
        };
        let expected = "  ~ Service shop/web: spec.ports[0].port: 80 here, 81 there; spec.sessions: absent here, 1 there; \
                        spec.type: \"A\" here, absent there\n";
        assert_eq!(difference.to_string(), expected);
    }

    #[test]
    fn objects_of_one_state_are_printed_whole() {
        let [web, mail] = ["web", "mail"].map(|name| service(name, &json!({})));
        let unnamed = json!({ "kind": "Service" }).to_string();
        let difference = Difference {
            only_here: vec![web.clone(), unnamed.clone()],
            only_there: vec![unnamed.clone(), mail.clone()],
        };
        let expected = format!("  + {web}\n  + {unnamed}\n  - {unnamed}\n  - {mail}\n");
        assert_eq!(difference.to_string(), expected);
    }

    #[test]
    fn number_of_printed_objects_is_limited() {
        let difference = Difference {
            only_here: (0..7).map(|n| service(&format!("s{n}"), &json!({}))).collect(),
            ..Difference::default()
        };
        assert!(difference.to_string().ends_with("  + and 3 more\n"), "{difference}");
    }
}
