//! Comparison of the exchanges with two servers.

use serde_json::Value;

use super::differences::{ANSWERS, PARTS, UsedExceptions};
use super::session::Exchange;

/// Maximum number of different fields that are printed.
const SHOWN: usize = 8;
/// Maximum length of a printed value. Of longer values, the part with the first difference is printed.
const LENGTH: usize = 1500;

/// A request that two servers answer differently.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// Seed and position of the request.
    pub position: (u64, usize),
    /// Request, as sent to kube-apiserver.
    pub request: String,
    /// Different fields: path, value of the in-process server, value of kube-apiserver.
    pub fields: Vec<(String, Value, Value)>,
}

/// Returns the disagreements of the two servers about the sequence of a seed that no exception explains.
#[must_use]
pub fn compare(
    seed: u64,
    ours: &[Exchange],
    real: &[Exchange],
    used: &mut UsedExceptions,
) -> Vec<Disagreement> {
    let mut found = Vec::new();
    for (index, (ours, real)) in ours.iter().zip(real).enumerate() {
        let mut fields = Vec::new();
        let (our, their) = (&ours.answer, &real.answer);
        if our.status != their.status {
            fields.push(("status".to_owned(), our.status.into(), their.status.into()));
        }
        if our.warnings != their.warnings {
            fields.push(("warnings".to_owned(), our.warnings.clone().into(), their.warnings.clone().into()));
        }
        fields.extend(compared(seed, &our.body, &their.body, used));
        if fields.is_empty() {
            continue;
        }
        let disagreement = Disagreement { position: (seed, index), request: real.request.clone(), fields };
        match ANSWERS.iter().find(|known| (known.explains)(&disagreement)) {
            Some(known) => used.add(known.reason, seed),
            None => found.push(disagreement),
        }
    }
    found
}

/// Returns the differences of two bodies without the parts that are not compared.
fn compared(seed: u64, ours: &Value, real: &Value, used: &mut UsedExceptions) -> Vec<(String, Value, Value)> {
    let (mut ours, mut real, mut found) = (ours.clone(), real.clone(), Vec::new());
    differences(&ours, &real, "", &mut found);
    for part in PARTS {
        if found.is_empty() {
            break;
        }
        (part.remove)(&mut ours);
        (part.remove)(&mut real);
        let mut rest = Vec::new();
        differences(&ours, &real, "", &mut rest);
        if rest.len() < found.len() {
            used.add(part.reason, seed);
        }
        found = rest;
    }
    found
}

fn differences(ours: &Value, real: &Value, path: &str, found: &mut Vec<(String, Value, Value)>) {
    match (ours, real) {
        (Value::Object(left), Value::Object(right)) => {
            let mut names: Vec<_> = left.keys().chain(right.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let (left, right) = (left.get(name), right.get(name));
                match (left, right) {
                    (Some(left), Some(right)) => differences(left, right, &format!("{path}/{name}"), found),
                    _ => found.push((format!("{path}/{name}"), shown(left), shown(right))),
                }
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                differences(left, right, &format!("{path}/{index}"), found);
            }
        }
        (left, right) if left == right => {}
        (left, right) => found.push((path.to_owned(), left.clone(), right.clone())),
    }
}

fn shown(value: Option<&Value>) -> Value {
    value.cloned().unwrap_or_else(|| Value::from("<missing>"))
}

fn cut(text: &str) -> String {
    if text.chars().count() <= LENGTH {
        return text.to_owned();
    }
    text.chars().take(LENGTH).chain(" ...".chars()).collect()
}

impl std::fmt::Display for Disagreement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seed, index) = self.position;
        writeln!(f, "seed {seed}, request {index}: {}", cut(&self.request))?;
        for (path, ours, real) in self.fields.iter().take(SHOWN) {
            let (ours, real) = (ours.to_string(), real.to_string());
            let equal = ours.chars().zip(real.chars()).take_while(|(ours, real)| ours == real).count();
            let skipped = if equal > LENGTH / 2 { equal - LENGTH / 4 } else { 0 };
            let shown = |text: &str| cut(&text.chars().skip(skipped).collect::<String>());
            writeln!(f, "  {path}\n    ours {}\n    real {}", shown(&ours), shown(&real))?;
        }
        if self.fields.len() > SHOWN {
            writeln!(f, "  and {} more fields", self.fields.len() - SHOWN)?;
        }
        Ok(())
    }
}
