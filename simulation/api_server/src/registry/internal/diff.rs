//! Unified diffs, with the matches that upstream's library finds.
//!
//! The library is a port of Python's `difflib`: the longest match of lines, then the matches on both sides of it. In a
//! text of 200 lines or more, frequent lines start no match.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Number of unchanged lines around a change.
const CONTEXT: usize = 3;
/// Number of lines from which frequent lines are ignored.
const LONG: usize = 200;

/// Equal lines: first line in each text, and the number of lines.
#[derive(Clone, Copy)]
struct Match {
    old: usize,
    new: usize,
    count: usize,
}

/// A part of the texts: the lines in each, and whether they are equal.
#[derive(Clone, Copy)]
struct Part {
    is_equal: bool,
    old: (usize, usize),
    new: (usize, usize),
}

/// Returns the unified diff of two texts without the header of the files.
pub(super) fn unified(old: &str, new: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (old.split('\n').collect(), new.split('\n').collect());
    let matches = Matcher::new(&old, &new).matches();
    let mut text = String::new();
    for group in grouped(parts(&matches)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        // Writing to a string is infallible.
        let _ =
            writeln!(text, "@@ -{} +{} @@", range(first.old.0, last.old.1), range(first.new.0, last.new.1));
        for part in &group {
            let (gone, come) = if part.is_equal { (' ', None) } else { ('-', Some('+')) };
            for line in &old[part.old.0..part.old.1] {
                let _ = writeln!(text, "{gone}{line}");
            }
            for (sign, line) in
                come.into_iter().flat_map(|sign| new[part.new.0..part.new.1].iter().map(move |it| (sign, it)))
            {
                let _ = writeln!(text, "{sign}{line}");
            }
        }
    }
    text
}

fn range(start: usize, end: usize) -> String {
    match end - start {
        1 => format!("{}", start + 1),
        0 => format!("{start},0"),
        length => format!("{},{length}", start + 1),
    }
}

struct Matcher<'a> {
    old: &'a [&'a str],
    new: &'a [&'a str],
    /// Positions of the lines of the new text that can start a match.
    places: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> Matcher<'a> {
    fn new(old: &'a [&'a str], new: &'a [&'a str]) -> Self {
        let mut places = BTreeMap::<_, Vec<_>>::new();
        for (index, line) in new.iter().enumerate() {
            places.entry(*line).or_default().push(index);
        }
        if new.len() >= LONG {
            places.retain(|_, found| found.len() <= new.len() / 100 + 1);
        }
        Matcher { old, new, places }
    }

    /// Returns the matches in order, followed by an empty match at the end.
    fn matches(&self) -> Vec<Match> {
        let mut found = Vec::new();
        self.find((0, self.old.len()), (0, self.new.len()), &mut found);
        let mut joined: Vec<Match> = Vec::new();
        for next in found {
            match joined.last_mut() {
                Some(last) if last.old + last.count == next.old && last.new + last.count == next.new => {
                    last.count += next.count;
                }
                _ => joined.push(next),
            }
        }
        joined.push(Match { old: self.old.len(), new: self.new.len(), count: 0 });
        joined
    }

    fn find(&self, old: (usize, usize), new: (usize, usize), found: &mut Vec<Match>) {
        let best = self.longest(old, new);
        if best.count == 0 {
            return;
        }
        if old.0 < best.old && new.0 < best.new {
            self.find((old.0, best.old), (new.0, best.new), found);
        }
        found.push(best);
        let (after_old, after_new) = (best.old + best.count, best.new + best.count);
        if after_old < old.1 && after_new < new.1 {
            self.find((after_old, old.1), (after_new, new.1), found);
        }
    }

    fn longest(&self, old: (usize, usize), new: (usize, usize)) -> Match {
        let mut best = Match { old: old.0, new: new.0, count: 0 };
        let mut lengths = BTreeMap::<usize, usize>::new();
        for index in old.0..old.1 {
            let mut next = BTreeMap::new();
            let places = self.places.get(self.old[index]).map_or(&[][..], Vec::as_slice);
            for place in places.iter().copied().filter(|place| (new.0..new.1).contains(place)) {
                let before = place.checked_sub(1).and_then(|it| lengths.get(&it));
                let count = before.copied().unwrap_or_default() + 1;
                next.insert(place, count);
                if count > best.count {
                    best = Match { old: index + 1 - count, new: place + 1 - count, count };
                }
            }
            lengths = next;
        }
        while best.old > old.0 && best.new > new.0 && self.old[best.old - 1] == self.new[best.new - 1] {
            best = Match { old: best.old - 1, new: best.new - 1, count: best.count + 1 };
        }
        while best.old + best.count < old.1
            && best.new + best.count < new.1
            && self.old[best.old + best.count] == self.new[best.new + best.count]
        {
            best.count += 1;
        }
        best
    }
}

fn parts(matches: &[Match]) -> Vec<Part> {
    let (mut old, mut new, mut parts) = (0, 0, Vec::new());
    for found in matches {
        if old < found.old || new < found.new {
            parts.push(Part { is_equal: false, old: (old, found.old), new: (new, found.new) });
        }
        (old, new) = (found.old + found.count, found.new + found.count);
        if found.count > 0 {
            parts.push(Part { is_equal: true, old: (found.old, old), new: (found.new, new) });
        }
    }
    parts
}

/// Returns groups of changes with their context.
fn grouped(mut parts: Vec<Part>) -> Vec<Vec<Part>> {
    let start = |part: Part| Part {
        old: (part.old.0.max(part.old.1.saturating_sub(CONTEXT)), part.old.1),
        new: (part.new.0.max(part.new.1.saturating_sub(CONTEXT)), part.new.1),
        ..part
    };
    let end = |part: Part| Part {
        old: (part.old.0, part.old.1.min(part.old.0 + CONTEXT)),
        new: (part.new.0, part.new.1.min(part.new.0 + CONTEXT)),
        ..part
    };
    if let Some(first) = parts.first_mut().filter(|it| it.is_equal) {
        *first = start(*first);
    }
    if let Some(last) = parts.last_mut().filter(|it| it.is_equal) {
        *last = end(*last);
    }
    let (mut groups, mut group) = (Vec::new(), Vec::new());
    for mut part in parts {
        if part.is_equal && part.old.1 - part.old.0 > 2 * CONTEXT {
            group.push(end(part));
            groups.push(std::mem::take(&mut group));
            part = start(part);
        }
        group.push(part);
    }
    if !(group.is_empty() || group.len() == 1 && group.iter().all(|it| it.is_equal)) {
        groups.push(group);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distant_changes_are_in_separate_groups() {
        let old: Vec<_> = (0..20).map(|it| it.to_string()).collect();
        let mut new = old.clone();
        new[1] = "x".to_owned();
        new.remove(18);
        let expected =
            "@@ -1,5 +1,5 @@\n 0\n-1\n+x\n 2\n 3\n 4\n@@ -16,5 +16,4 @@\n 15\n 16\n 17\n-18\n 19\n";
        assert_eq!(unified(&old.join("\n"), &new.join("\n")), expected);
    }
}
