//! What to make of objects that exist but cannot be decoded.
//!
//! Of such an object only its key and identity are known. It is in no list, and nobody is told when it goes, so whoever
//! holds still because of one has to look again.

use std::time::Duration;

use super::pod_template::name_prefix;

/// How often to look whether an object that cannot be decoded is still there. Every look is in memory; what waits for it
/// is a case for people, so seconds do not count.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The longest prefix of a generated name, in bytes: API servers cut it so that all of the name fits into a DNS label.
const LONGEST_PREFIX: usize = 63 - RANDOM_PART;

/// How many random characters API servers append to a prefix.
const RANDOM_PART: usize = 5;

/// Whether a pod of this name may have been created for the owner of that name: whether the server would make the one
/// from the other.
///
/// Another owner's pods pass only if the cut leaves nothing of what sets the owners apart. A pod that was adopted may
/// bear any name; mistaking one for nobody's costs a single replacement, since replacements have generated names.
pub(crate) fn may_be_generated_for(owner: &str, pod: &str) -> bool {
    let prefix = name_prefix(owner);
    let prefix = prefix.get(..LONGEST_PREFIX).unwrap_or(&prefix);
    let is_random = |part: &str| {
        part.len() == RANDOM_PART
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    pod.strip_prefix(prefix).is_some_and(is_random)
}

#[cfg(test)]
mod tests {
    use super::may_be_generated_for;

    #[test]
    fn pods_are_told_apart_by_what_the_server_makes_of_the_names_of_their_owners() {
        assert!(may_be_generated_for("web", "web-x7k2p"));
        for other in ["web", "web-", "web-x7k2", "web-front-x7k2p", "webfront-x7k2p", "web-x7-2p", "we-x7k2p"]
        {
            assert!(!may_be_generated_for("web", other), "{other}");
        }
    }

    #[test]
    fn a_long_name_is_recognised_by_what_the_server_left_of_it() {
        let owner = "a".repeat(60);
        let pod = |prefix: usize| format!("{}x7k2p", "a".repeat(prefix));
        assert!(may_be_generated_for(&owner, &pod(58)));
        assert!(!may_be_generated_for(&owner, &pod(57)));
        assert!(!may_be_generated_for(&owner, &format!("{owner}-x7k2p")));
        let just_fits = "a".repeat(57);
        assert!(may_be_generated_for(&just_fits, &format!("{just_fits}-x7k2p")));
    }
}
