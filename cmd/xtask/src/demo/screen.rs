//! Where the demo writes: lines that stay, one for each observed change among them, and below them,
//! on a terminal, a table of what there is now, redrawn in place.
//!
//! Where output is not a terminal there is no table and no control sequence. The screen is what
//! remembers the last observation, so that only changes are written.

use std::io::{self, IsTerminal as _, Stdout, Write};
use std::time::Instant;

use anyhow::{Context as _, Result};

use super::observed::Observed;
use super::render::{Size, changes, table};

/// What a terminal is taken for that does not tell its size.
const USUAL: Size = Size { columns: 80, rows: 24 };

/// What asks a terminal for its size.
type AskSize = fn() -> Size;

/// The demo's output.
#[derive(Debug)]
pub(super) struct Screen<W> {
    out: W,
    started: Instant,
    /// Present on a terminal, which may change its size at any time.
    terminal: Option<AskSize>,
    last: Observed,
    /// The lines of the table that stand right above the cursor.
    drawn: Vec<String>,
}

impl Screen<Stdout> {
    /// Standard output. A terminal that calls itself dumb gets lines.
    pub(super) fn stdout() -> Self {
        let out = io::stdout();
        let is_dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb");
        let terminal = out.is_terminal() && !is_dumb;
        Self::new(out, terminal.then_some(terminal_size))
    }
}

impl<W: Write> Screen<W> {
    fn new(out: W, terminal: Option<AskSize>) -> Self {
        Self { out, started: Instant::now(), terminal, last: Observed::default(), drawn: Vec::new() }
    }

    /// Whether somebody sits in front of it.
    pub(super) fn is_terminal(&self) -> bool {
        self.terminal.is_some()
    }

    /// Writes a line that stays, with the seconds since the start.
    ///
    /// # Errors
    /// When nobody takes it.
    pub(super) fn say(&mut self, line: &str) -> Result<()> {
        let elapsed = self.started.elapsed().as_secs_f64();
        self.above_table(&format!("{elapsed:>7.1} s  {line}\n"))
    }

    /// Writes text that stays, as it is.
    ///
    /// # Errors
    /// When nobody takes it.
    pub(super) fn print(&mut self, text: &str) -> Result<()> {
        self.above_table(&format!("{}\n", text.trim_end_matches('\n')))
    }

    /// Shows what is observed now, and what has changed.
    ///
    /// # Errors
    /// When nobody takes it.
    pub(super) fn show(&mut self, observed: &Observed) -> Result<()> {
        let lines = changes(&self.last, observed);
        self.last = observed.clone();
        lines.iter().try_for_each(|line| self.say(&format!("    {line}")))?;
        match self.terminal {
            Some(size) => self.redraw(table(observed, size())),
            None => Ok(()),
        }
    }

    /// Leaves the table where it stands: what follows is written below it.
    pub(super) fn release(&mut self) {
        self.drawn.clear();
    }

    fn above_table(&mut self, text: &str) -> Result<()> {
        let lines = std::mem::take(&mut self.drawn);
        let frame = format!("{}{text}{}", erasing(lines.len()), joined(&lines));
        self.drawn = lines;
        self.write(&frame)
    }

    fn redraw(&mut self, lines: Vec<String>) -> Result<()> {
        if lines == self.drawn {
            return Ok(());
        }
        let frame = format!("{}{}", erasing(self.drawn.len()), joined(&lines));
        self.drawn = lines;
        self.write(&frame)
    }

    /// One write per frame, so that no half of one is ever seen.
    fn write(&mut self, frame: &str) -> Result<()> {
        let written = self.out.write_all(frame.as_bytes()).and_then(|()| self.out.flush());
        written.context("writing to standard output")
    }
}

/// What moves the cursor up by `lines` and clears all below it.
fn erasing(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!("\x1b[{lines}A\r\x1b[J") }
}

fn joined(lines: &[String]) -> String {
    lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
}

fn terminal_size() -> Size {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let size = size.map(|size| Size { columns: size.ws_col.into(), rows: size.ws_row.into() });
    size.filter(|size| size.columns > 0 && size.rows > 0).unwrap_or(USUAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanting(count: usize) -> Observed {
        Observed { wanted: Some(count), ..Observed::default() }
    }

    fn written(terminal: Option<AskSize>, act: impl FnOnce(&mut Screen<Vec<u8>>)) -> String {
        let mut screen = Screen::new(Vec::new(), terminal);
        act(&mut screen);
        String::from_utf8(screen.out).unwrap()
    }

    #[test]
    fn without_a_terminal_each_change_is_a_line_and_there_are_no_control_sequences() {
        let text = written(None, |screen| {
            screen.show(&wanting(2)).unwrap();
            screen.show(&wanting(2)).unwrap();
            screen.show(&wanting(3)).unwrap();
        });
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.lines().next().unwrap().ends_with(" s      ReplicaSet web wants 2 pods"), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
    }

    #[test]
    fn on_a_terminal_changes_are_lines_too_above_the_table() {
        let text = written(Some(|| USUAL), |screen| screen.show(&wanting(2)).unwrap());
        let table = joined(&table(&wanting(2), USUAL));
        assert!(text.strip_suffix(&table).unwrap().ends_with("ReplicaSet web wants 2 pods\n"), "{text}");
    }

    #[test]
    fn a_line_goes_above_the_table_which_is_drawn_again() {
        let height = table(&wanting(2), USUAL).len();
        let text = written(Some(|| USUAL), |screen| {
            screen.show(&wanting(2)).unwrap();
            screen.print("news\n\n").unwrap();
        });
        let (first, rest) = text.split_once(&format!("\x1b[{height}A\r\x1b[Jnews\n")).unwrap();
        assert!(first.ends_with(rest) && rest == joined(&table(&wanting(2), USUAL)), "{text}");
    }

    #[test]
    fn a_table_that_has_not_changed_is_not_drawn_again() {
        let text = written(Some(|| USUAL), |screen| {
            screen.show(&wanting(2)).unwrap();
            screen.show(&wanting(2)).unwrap();
        });
        assert_eq!(text.matches("Endpoints web").count(), 1, "{text}");
    }

    #[test]
    fn a_released_table_stays() {
        let text = written(Some(|| USUAL), |screen| {
            screen.show(&wanting(2)).unwrap();
            screen.release();
            screen.print("the end").unwrap();
        });
        assert!(!text.contains('\x1b') && text.ends_with("the end\n"), "{text}");
    }
}
