//! The certificates of a process over time. Pure: state in, next step out.
//!
//! Guarantees:
//! - A leaf is served only after the certificate of its authority is in every `caBundle`, and, if another leaf is
//!   served, [`Lifetimes::announcement`] later: API servers have received the `caBundle` by then.
//! - A leaf does not outlive its authority, and an authority stays in the `caBundle` until it expires.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The lifetimes of certificates, and the delays between steps.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Lifetimes {
    /// Lifetime of an authority. It is replaced after two thirds.
    pub(crate) authority: Duration,
    /// Lifetime of a leaf. It is replaced after two thirds.
    pub(crate) leaf: Duration,
    /// Time from the injection of an authority to the use of its leaf.
    pub(crate) announcement: Duration,
    /// Interval between checks of the Secret and the `caBundle`s.
    pub(crate) period: Duration,
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Lifetimes {
    /// The values in production. Checks are cheap: one GET for the Secret and each object with a `caBundle`. A manifest
    /// that replaces a `caBundle` thus stops webhooks for one period at most.
    pub(crate) const DEFAULT: Self = Self {
        authority: DAY.saturating_mul(365),
        leaf: DAY.saturating_mul(90),
        announcement: Duration::from_secs(5 * 60),
        period: Duration::from_secs(10),
    };
}

/// A certificate authority.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Authority {
    /// The common name, which is unique.
    pub(crate) name: String,
    /// The certificate in PEM.
    pub(crate) certificate: String,
    /// The private key in PEM.
    pub(crate) key: String,
    pub(crate) not_after: Timestamp,
    /// The time at which the next authority is created.
    pub(crate) renew_at: Timestamp,
    /// The time since which every `caBundle` contains the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) announced: Option<Timestamp>,
}

/// A serving certificate.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Leaf {
    /// The certificate in PEM.
    pub(crate) certificate: String,
    /// The private key in PEM.
    pub(crate) key: String,
    /// The names and addresses that it covers.
    pub(crate) names: Vec<String>,
    /// The name of its authority.
    pub(crate) issuer: String,
    pub(crate) not_after: Timestamp,
    /// The time at which the next leaf is issued.
    pub(crate) renew_at: Timestamp,
}

/// The contents of the Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The authorities, ordered from the oldest to the newest.
    pub(crate) authorities: Vec<Authority>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) leaf: Option<Leaf>,
}

/// The next change of the certificates.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Creates the next authority.
    CreateAuthority,
    /// Writes all authorities into each `caBundle` that lacks one of them.
    Inject,
    /// Records that every `caBundle` contains the newest authority.
    Announce,
    /// Issues a leaf by the authority with this index.
    IssueLeaf { authority: usize },
    /// Removes authorities that have expired.
    DropExpired,
    /// Waits until the next check.
    Wait,
}

/// Returns the next step. `is_injected` states whether every `caBundle` contains all authorities; `names` are those
/// that the leaf must cover.
pub(crate) fn next_step(
    state: &State,
    is_injected: bool,
    names: &[String],
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Step {
    let State { authorities, leaf } = state;
    let Some(newest) = authorities.last() else { return Step::CreateAuthority };
    if now >= newest.renew_at {
        return Step::CreateAuthority;
    }
    if !is_injected {
        return Step::Inject;
    }
    if newest.announced.is_none() {
        return Step::Announce;
    }
    let is_usable = |authority: &Authority| authority.announced.is_some() && now < authority.not_after;
    let settled = authorities.iter().rposition(|it| is_usable(it) && is_settled(it, lifetimes, now));
    let Some(leaf) = leaf.as_ref().filter(|leaf| now < leaf.not_after && leaf.names == names) else {
        // A settled authority if there is one. Otherwise the newest: there is nothing to serve until then.
        return match settled.or_else(|| authorities.iter().rposition(is_usable)) {
            Some(authority) => Step::IssueLeaf { authority },
            None => Step::Wait,
        };
    };
    match settled {
        Some(authority) if now >= leaf.renew_at || leaf.issuer != authorities[authority].name => {
            Step::IssueLeaf { authority }
        }
        _ if authorities.iter().any(|authority| now >= authority.not_after) => Step::DropExpired,
        _ => Step::Wait,
    }
}

/// Returns whether API servers have received the certificate of this authority.
fn is_settled(authority: &Authority, lifetimes: &Lifetimes, now: Timestamp) -> bool {
    authority
        .announced
        .is_some_and(|at| now.duration_since(at).unsigned_abs() >= lifetimes.announcement && now >= at)
}

/// Returns the leaf that replaces the `served` one; `None` if that one stays.
pub(crate) fn leaf_to_serve<'a>(
    state: &'a State,
    served: Option<&Leaf>,
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Option<&'a Leaf> {
    let leaf = state.leaf.as_ref().filter(|leaf| Some(*leaf) != served)?;
    let issuer = state.authorities.iter().find(|it| it.name == leaf.issuer)?;
    let has_other = served.is_some_and(|served| now < served.not_after);
    let is_covered = if has_other { is_settled(issuer, lifetimes, now) } else { issuer.announced.is_some() };
    is_covered.then_some(leaf)
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("name", &self.name)
            .field("announced", &self.announced)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaf")
            .field("issuer", &self.issuer)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + minutes * 60).expect("a time")
    }

    /// An authority that is replaced after 200 minutes and expires after 300.
    fn authority(name: &str, from: i64, announced: Option<i64>) -> Authority {
        let (certificate, key) = (name.to_owned(), String::new());
        let (not_after, renew_at) = (at(from + 300), at(from + 200));
        Authority {
            name: name.to_owned(),
            certificate,
            key,
            not_after,
            renew_at,
            announced: announced.map(at),
        }
    }

    /// A leaf that is replaced after 60 minutes and expires after 90.
    fn leaf(issuer: &str, from: i64) -> Leaf {
        let (certificate, key) = (format!("{issuer} {from}"), String::new());
        let (not_after, renew_at) = (at(from + 90), at(from + 60));
        Leaf { certificate, key, names: names(), issuer: issuer.to_owned(), not_after, renew_at }
    }

    fn names() -> Vec<String> {
        vec!["web.ops.svc".to_owned()]
    }

    fn step(authorities: &[Authority], leaf: Option<Leaf>, is_injected: bool, minute: i64) -> Step {
        let state = State { authorities: authorities.to_vec(), leaf };
        next_step(&state, is_injected, &names(), &Lifetimes::DEFAULT, at(minute))
    }

    #[test]
    fn first_leaf_follows_injection_of_first_authority() {
        let (fresh, announced) = (authority("a", 0, None), authority("a", 0, Some(0)));
        assert_eq!(step(&[], None, true, 0), Step::CreateAuthority);
        assert_eq!(step(from_ref(&fresh), None, false, 0), Step::Inject);
        assert_eq!(step(&[fresh], None, true, 0), Step::Announce);
        assert_eq!(step(from_ref(&announced), None, true, 0), Step::IssueLeaf { authority: 0 });
        assert_eq!(step(from_ref(&announced), Some(leaf("a", 0)), true, 0), Step::Wait);
        assert_eq!(step(&[announced], Some(leaf("a", 0)), false, 0), Step::Inject, "a manifest was applied");
    }

    #[test]
    fn leaf_is_renewed_after_two_thirds_or_when_names_change() {
        let authorities = [authority("a", 0, Some(0))];
        assert_eq!(step(&authorities, Some(leaf("a", 0)), true, 59), Step::Wait);
        assert_eq!(step(&authorities, Some(leaf("a", 0)), true, 60), Step::IssueLeaf { authority: 0 });
        let other = Leaf { names: vec!["other".to_owned()], ..leaf("a", 0) };
        assert_eq!(step(&authorities, Some(other), true, 1), Step::IssueLeaf { authority: 0 });
    }

    #[test]
    fn leaf_of_next_authority_waits_for_its_announcement() {
        let old = authority("a", 0, Some(0));
        let served = Some(leaf("a", 195));
        assert_eq!(step(from_ref(&old), served.clone(), true, 200), Step::CreateAuthority);
        let both = |announced| [old.clone(), authority("b", 200, announced)];
        assert_eq!(step(&both(None), served.clone(), false, 200), Step::Inject);
        assert_eq!(step(&both(None), served.clone(), true, 200), Step::Announce);
        assert_eq!(step(&both(Some(200)), served.clone(), true, 204), Step::Wait);
        assert_eq!(step(&both(Some(200)), served.clone(), true, 205), Step::IssueLeaf { authority: 1 });
        let next = Some(leaf("b", 205));
        assert_eq!(step(&both(Some(200)), next.clone(), true, 299 - 60), Step::Wait, "both stay");
        let renewed = Some(leaf("b", 260));
        assert_eq!(step(&both(Some(200)), renewed, true, 300), Step::DropExpired);
    }

    #[test]
    fn expiring_leaf_is_renewed_by_old_authority_while_next_is_announced() {
        let both = [authority("a", 0, Some(0)), authority("b", 200, Some(200))];
        assert_eq!(step(&both, None, true, 202), Step::IssueLeaf { authority: 0 });
        assert_eq!(step(&both, Some(leaf("a", 100)), true, 202), Step::IssueLeaf { authority: 0 });
    }

    #[test]
    fn newest_authority_issues_leaf_when_none_is_settled() {
        let both = [authority("a", -400, Some(-400)), authority("b", 200, Some(200))];
        assert_eq!(step(&both, None, true, 201), Step::IssueLeaf { authority: 1 }, "the old one has expired");
    }

    #[test]
    fn replica_serves_new_leaf_after_announcement_unless_it_has_none() {
        let state = |announced| State {
            authorities: vec![authority("a", 0, Some(0)), authority("b", 200, announced)],
            leaf: Some(leaf("b", 201)),
        };
        let serve = |announced, served: Option<Leaf>, minute| {
            leaf_to_serve(&state(announced), served.as_ref(), &Lifetimes::DEFAULT, at(minute)).is_some()
        };
        let (valid, expired) = (Some(leaf("a", 150)), Some(leaf("a", 100)));
        assert!(!serve(None, None, 201), "no caBundle covers it");
        assert!(serve(Some(200), None, 201), "a new replica has nothing else");
        assert!(serve(Some(200), expired, 201));
        assert!(!serve(Some(200), valid.clone(), 204));
        assert!(serve(Some(200), valid, 205));
        assert!(!serve(Some(200), Some(leaf("b", 201)), 205), "it is served already");
    }

    #[test]
    fn keys_are_not_shown() {
        let secret = Authority { key: "secret".to_owned(), ..authority("a", 0, None) };
        let state = State {
            authorities: vec![secret],
            leaf: Some(Leaf { key: "secret".to_owned(), ..leaf("a", 0) }),
        };
        assert!(!format!("{state:?}").contains("secret"));
    }
}
