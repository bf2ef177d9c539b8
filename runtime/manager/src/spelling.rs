//! What somebody meant who wrote a word that nobody knows.

/// The known word that is spelled most like this one: near enough that it may have been meant, which is to say that at
/// most a third of it would have to change. Of several equally near the first.
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // What is far longer than anything known is like nothing, however long it takes to find out.
    let near = |spelling: &&str| word.len() <= spelling.len() * 3 + 3;
    let scored = known.into_iter().filter(near).map(|spelling| (distance(word, spelling), spelling));
    scored
        .filter(|(distance, spelling)| distance * 3 <= spelling.chars().count().max(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, spelling)| spelling)
}

/// How many letters must be added, removed or exchanged to make one text of the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.iter().enumerate() {
            let exchanged = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_leads_to_the_word_that_was_meant_and_another_word_to_none() {
        let known = ["leaseDuration", "renewDeadline"];
        assert_eq!(closest("leaseDuratoin", known), Some("leaseDuration"));
        assert_eq!(closest("renewdeadline", known), Some("renewDeadline"));
        assert_eq!(closest("port", known), None);
        assert_eq!(closest("", known), None);
        assert_eq!(closest(&"leaseDuration".repeat(1000), known), None);
    }
}
