//! Deduplicates missing permissions, so that each is logged once per minute and not once per key.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use windlass_client::MissingPermission;
use windlass_env::Instant;
use windlass_object::Rule;

/// Interval between two log lines about the same missing rule.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A user and the missing rule. The namespace is not part of the key.
type DenialKey = (Option<String>, Rule);

/// Times of the last log line about each missing rule. Its size is bounded by the declared rules.
#[derive(Debug, Default)]
pub(crate) struct DenialLog(Mutex<BTreeMap<DenialKey, Instant>>);

impl DenialLog {
    /// Returns whether this denial must be logged now.
    pub(crate) fn should_log(&self, denial: &MissingPermission, now: Instant) -> bool {
        let lack = (denial.user.clone(), denial.rule.clone());
        // No foreign code runs under this lock, so a poisoned lock still has a valid map.
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let news = logged.get(&lack).is_none_or(|last| now.saturating_duration_since(*last) >= LOG_INTERVAL);
        if news {
            logged.insert(lack, now);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use windlass_object::Verb;

    use super::*;

    #[test]
    fn missing_rule_is_logged_once_a_minute_for_all_keys() {
        let denials = DenialLog::default();
        let in_namespace = |verb, namespace: &str| MissingPermission {
            user: Some("me".into()),
            verb,
            namespace: Some(namespace.into()),
            rule: Rule::new("", "pods", [verb]),
        };
        let at = |second| Instant::ORIGIN + Duration::from_secs(second);
        assert!(denials.should_log(&in_namespace(Verb::Create, "a"), at(0)));
        assert!(!denials.should_log(&in_namespace(Verb::Create, "a"), at(1)));
        assert!(!denials.should_log(&in_namespace(Verb::Create, "b"), at(59)));
        assert!(denials.should_log(&in_namespace(Verb::Delete, "b"), at(59)), "another rule");
        assert!(denials.should_log(&in_namespace(Verb::Create, "b"), at(60)));
    }
}
