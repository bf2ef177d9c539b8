//! Reads the files in `claims/`.
//!
//! A file is Markdown. A table with the columns `id`, `there`, `here` and `note` holds claims; all other text is copied
//! to the page. The note is empty, or one of [`NOTES`], or one of them with `: <reason>`.

/// Notes that explain a claim without a test, or a difference.
const NOTES: [&str; 3] = ["not done", "otherwise", "shown by its type"];

/// The first row of each table of claims.
const HEAD: [&str; 4] = ["id", "there", "here", "note"];

/// A row of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) id: String,
    pub(super) there: String,
    pub(super) here: String,
    pub(super) note: String,
    /// File and line.
    pub(super) place: String,
}

/// A part of a file, in the order of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// A line of text.
    Text(String),
    /// The first row of a table of claims.
    TableHead,
    Claim(Claim),
}

impl Claim {
    /// Whether the note gives a reason, so that no test is required.
    pub(super) fn has_reason(&self) -> bool {
        self.note.contains(": ")
    }
}

impl Block {
    pub(super) fn claim(&self) -> Option<&Claim> {
        match self {
            Self::Claim(claim) => Some(claim),
            Self::Text(_) | Self::TableHead => None,
        }
    }
}

/// Reads a file. The second value lists invalid rows.
pub(super) fn parse(path: &str, text: &str) -> (Vec<Block>, Vec<String>) {
    let (mut blocks, mut problems) = (Vec::new(), Vec::new());
    for (at, line) in text.lines().enumerate() {
        let place = format!("{path}:{}", at + 1);
        match cells(line) {
            None => blocks.push(Block::Text(line.to_owned())),
            Some(cells) if cells == HEAD => blocks.push(Block::TableHead),
            Some(cells) if cells.iter().all(|cell| cell.starts_with("---")) => {}
            Some(cells) => match claim(&cells, &place) {
                Ok(claim) => blocks.push(Block::Claim(claim)),
                Err(problem) => problems.push(format!("{place}: {problem}")),
            },
        }
    }
    (blocks, problems)
}

/// The cells of a row of a table, or `None` for other text.
pub(super) fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.strip_prefix('|')?.trim_end().strip_suffix('|')?;
    let separator = if row.starts_with("---") { "|" } else { " | " };
    Some(row.split(separator).map(str::trim).collect())
}

fn claim(cells: &[&str], place: &str) -> Result<Claim, String> {
    let [id, there, here, note] = cells else {
        return Err(format!("row has {} cells; write id, there, here and note", cells.len()));
    };
    let id = id.trim_matches('`');
    if !is_id(id) {
        return Err(format!("`{id}` is not a valid id; use lowercase letters, digits and hyphens"));
    }
    if !is_note(note) {
        return Err(format!("note \"{note}\" is invalid; start it with one of {}", NOTES.join(", ")));
    }
    let [id, there, here, note] = [id, there, here, note].map(str::to_owned);
    Ok(Claim { id, there, here, note, place: place.to_owned() })
}

/// Whether a text is kebab-case.
pub(super) fn is_id(text: &str) -> bool {
    let is_word =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    text.split('-').all(is_word)
}

fn is_note(text: &str) -> bool {
    let starts =
        |kind: &str| text.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with(": "));
    text.is_empty() || NOTES.into_iter().any(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(row: &str) -> Vec<String> {
        parse("a.md", row).1
    }

    #[test]
    fn table_is_read_with_its_text() {
        let text = "## A\n\n| id | there | here | note |\n|---|---|---|---|\n| `get-by-key` | `GetByKey` | `get` | |\n";
        let (blocks, problems) = parse("a.md", text);
        assert_eq!(problems, [""; 0]);
        assert_eq!(blocks[..3], [Block::Text("## A".into()), Block::Text(String::new()), Block::TableHead]);
        let [id, there, here, note, place] =
            ["get-by-key", "`GetByKey`", "`get`", "", "a.md:5"].map(str::to_owned);
        assert_eq!(blocks[3..], [Block::Claim(Claim { id, there, here, note, place })]);
    }

    #[test]
    fn note_is_kept_with_its_reason() {
        let (blocks, _) =
            parse("a.md", "| `a` | b | c | not done: no user needs it |\n| `b` | b | c | otherwise |");
        let claims: Vec<&Claim> = blocks.iter().filter_map(Block::claim).collect();
        assert_eq!(claims[0].note, "not done: no user needs it");
        assert!(claims[0].has_reason());
        assert!(!claims[1].has_reason());
    }

    #[test]
    fn invalid_rows_are_reported_with_remedy() {
        let (cells, id, note) = (
            problems("| `a` | b | c |"),
            problems("| `A b` | b | c | |"),
            problems("| `a` | b | c | later: no |"),
        );
        assert_eq!(cells, ["a.md:1: row has 3 cells; write id, there, here and note"]);
        assert_eq!(id, ["a.md:1: `A b` is not a valid id; use lowercase letters, digits and hyphens"]);
        assert_eq!(
            note,
            [
                "a.md:1: note \"later: no\" is invalid; start it with one of not done, otherwise, shown by its type"
            ]
        );
    }
}
