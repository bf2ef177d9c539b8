//! Which rules a controller's role was found to lack, so that each is told once in a while and not once per key.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use windlass_client::MissingPermission;
use windlass_env::Instant;
use windlass_object::Rule;

/// How long a rule that lacks is not told again.
const QUIET: Duration = Duration::from_secs(60);

/// Who lacks which rule. Whether it was in one namespace or another makes no other rule.
type DenialKey = (Option<String>, Rule);

/// Bounded by what the controller declares.
#[derive(Debug, Default)]
pub(crate) struct DenialLog(Mutex<BTreeMap<DenialKey, Instant>>);

impl DenialLog {
    /// Whether this is worth telling now.
    pub(crate) fn is_news(&self, denial: &MissingPermission, now: Instant) -> bool {
        let lack = (denial.user.clone(), denial.rule.clone());
        // No code of others runs under this lock, so poison cannot mean a broken map.
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let news = told.get(&lack).is_none_or(|last| now.saturating_duration_since(*last) >= QUIET);
        if news {
            told.insert(lack, now);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use windlass_object::Verb;

    use super::*;

    #[test]
    fn rule_that_lacks_is_told_once_a_minute_however_many_keys_and_namespaces_lack_it() {
        let denials = DenialLog::default();
        let in_namespace = |verb, namespace: &str| MissingPermission {
            user: Some("me".into()),
            verb,
            namespace: Some(namespace.into()),
            rule: Rule::new("", "pods", [verb]),
        };
        let at = |second| Instant::ORIGIN + Duration::from_secs(second);
        assert!(denials.is_news(&in_namespace(Verb::Create, "a"), at(0)));
        assert!(!denials.is_news(&in_namespace(Verb::Create, "a"), at(1)));
        assert!(!denials.is_news(&in_namespace(Verb::Create, "b"), at(59)));
        assert!(denials.is_news(&in_namespace(Verb::Delete, "b"), at(59)), "another rule");
        assert!(denials.is_news(&in_namespace(Verb::Create, "b"), at(60)));
    }
}
