//! Suggestions for misspelled names.

/// Returns the known name that is most similar to `word`, if at most a third of its letters differ; the first of
/// several equally similar names.
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The distance takes quadratic time, and a word that is far longer than a name is not similar.
    let near = |name: &&str| word.len() <= name.len() * 3 + 3;
    let scored = known.into_iter().filter(near).map(|name| (strsim::osa_distance(word, name), name));
    scored
        .filter(|(distance, name)| distance * 3 <= name.chars().count().max(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_name_is_suggested_and_other_names_are_not() {
        let known = ["leaseDuration", "renewDeadline"];
        assert_eq!(closest("leaseDuratoin", known), Some("leaseDuration"));
        assert_eq!(closest("renewdeadline", known), Some("renewDeadline"));
        assert_eq!(closest("port", known), None);
        assert_eq!(closest("", known), None);
        assert_eq!(closest(&"leaseDuration".repeat(1000), known), None);
    }
}
