//! Rust source with comments, strings and characters replaced by blanks, so that rules read only code.
//!
//! Guarantees: the result has the same length in bytes as the source, and newlines at the same offsets; all remaining
//! braces and words are code. This is a handwritten lexer for formatted code that compiles; it detects no errors.

use std::ops::Range;

/// The blanked text. Its offsets are valid in the source.
#[derive(Debug)]
pub(crate) struct BlankedSource {
    text: String,
    blanks: Vec<Range<usize>>,
}

impl BlankedSource {
    pub(crate) fn new(source: &str) -> Self {
        let mut masker =
            Masker { source: source.as_bytes(), at: 0, out: source.as_bytes().to_vec(), blanks: Vec::new() };
        masker.run();
        // Whole literals are blanked, so the text is valid UTF-8; a lossy conversion tolerates broken input.
        Self { text: String::from_utf8_lossy(&masker.out).into_owned(), blanks: masker.blanks }
    }

    /// Returns the offsets of each line comment, block comment and literal, in source order.
    pub(crate) fn blanks(&self) -> &[Range<usize>] {
        &self.blanks
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the line of an offset, counted from 1.
    pub(crate) fn line_of(&self, offset: usize) -> usize {
        1 + self.text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count()
    }

    /// Returns the offset of the bracket that closes the bracket at `open`.
    pub(crate) fn closing(&self, open: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for (at, byte) in self.text.bytes().enumerate().skip(open) {
            match byte {
                b'{' | b'(' | b'[' => depth += 1,
                b'}' | b')' | b']' => depth = depth.checked_sub(1)?,
                _ => {}
            }
            if depth == 0 {
                return Some(at);
            }
        }
        None
    }
}

struct Masker<'a> {
    source: &'a [u8],
    at: usize,
    out: Vec<u8>,
    blanks: Vec<Range<usize>>,
}

impl Masker<'_> {
    fn run(&mut self) {
        while let Some(byte) = self.peek(0) {
            match (byte, self.peek(1)) {
                (b'/', Some(b'/')) => self.blank_to(self.end_of_line()),
                (b'/', Some(b'*')) => self.blank_to(self.end_of_block()),
                (b'"', _) => self.blank_to(self.end_of_string(self.at)),
                (b'r' | b'b' | b'c', _) if !self.inside_word() => self.prefixed(),
                (b'\'', _) => self.quote(),
                _ => self.at += 1,
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.source.get(self.at + ahead).copied()
    }

    fn inside_word(&self) -> bool {
        self.at > 0 && matches!(self.source[self.at - 1], b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z')
    }

    fn blank_to(&mut self, end: usize) {
        let end = end.min(self.out.len());
        self.blanks.push(self.at..end);
        for byte in &mut self.out[self.at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        self.at = end;
    }

    fn end_of_line(&self) -> usize {
        self.find(self.at, b"\n").unwrap_or(self.source.len())
    }

    fn find(&self, from: usize, needle: &[u8]) -> Option<usize> {
        self.source[from..].windows(needle.len()).position(|window| window == needle).map(|at| from + at)
    }

    /// Returns the end of a block comment, which can contain others.
    fn end_of_block(&self) -> usize {
        let (mut at, mut depth) = (self.at, 0_usize);
        while at < self.source.len() {
            let pair = &self.source[at..self.source.len().min(at + 2)];
            match pair {
                b"/*" => depth += 1,
                b"*/" => depth -= 1,
                _ => {
                    at += 1;
                    continue;
                }
            }
            at += 2;
            if depth == 0 {
                break;
            }
        }
        at
    }

    /// Returns the end of a string with escapes whose opening quote is at `quote`.
    fn end_of_string(&self, quote: usize) -> usize {
        let mut at = quote + 1;
        while at < self.source.len() {
            match self.source[at] {
                b'\\' => at += 2,
                b'"' => return at + 1,
                _ => at += 1,
            }
        }
        self.source.len()
    }

    /// Reads a word that can begin a raw, byte or C string: `r"`, `r#"`, `b"`, `br#"`, `c"`.
    fn prefixed(&mut self) {
        let letters = self.source[self.at..].iter().take_while(|byte| byte.is_ascii_lowercase()).count();
        let raw = self.source[self.at..self.at + letters].ends_with(b"r");
        let hashes = self.source[self.at + letters..].iter().take_while(|byte| **byte == b'#').count();
        let quote = self.at + letters + hashes;
        match self.source.get(quote) {
            Some(b'"') if letters <= 2 && raw => self.blank_to(self.end_of_raw(quote, hashes)),
            Some(b'"') if letters == 1 && hashes == 0 => self.blank_to(self.end_of_string(quote)),
            _ => self.at += letters.max(1),
        }
    }

    fn end_of_raw(&self, quote: usize, hashes: usize) -> usize {
        let mut end = vec![b'"'];
        end.resize(1 + hashes, b'#');
        self.find(quote + 1, &end).map_or(self.source.len(), |at| at + end.len())
    }

    /// Blanks a character literal, and skips a lifetime.
    fn quote(&mut self) {
        if self.peek(1) == Some(b'\\') {
            // The escaped character can be a quote.
            let end = self.find(self.at + 3, b"'").map_or(self.source.len(), |at| at + 1);
            return self.blank_to(end);
        }
        let rest = String::from_utf8_lossy(&self.source[self.at + 1..self.source.len().min(self.at + 6)]);
        let mut chars = rest.chars();
        match (chars.next(), chars.next()) {
            (Some(c), Some('\'')) => self.blank_to(self.at + 2 + c.len_utf8()),
            _ => self.at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(source: &str) -> String {
        BlankedSource::new(source).text().to_owned()
    }

    #[test]
    fn comments_and_literals_become_blanks_of_the_same_length() {
        for (source, expected) in [
            ("a // b\nc", "a     \nc"),
            ("a /* { /* } */ */ b", "a                 b"),
            (r#"f("{ \" }") {"#, r#"f(        ) {"#),
            (r##"r#"}"# + br"x" + r_x"##, r##"       +       + r_x"##),
            ("('{', '\\'', '\\u{7d}', 'é')", "(   ,     ,         ,     )"),
            ("fn f<'a>(x: &'a str) { 'x: loop {} }", "fn f<'a>(x: &'a str) { 'x: loop {} }"),
            ("var\"s\"", "var   "),
        ] {
            assert_eq!(mask(source), expected, "{source}");
            assert_eq!(mask(source).len(), source.len());
        }
    }

    #[test]
    fn brackets_are_matched_across_lines() {
        let masked = BlankedSource::new("fn f() {\n  g(\"}\");\n}\n");
        let open = masked.text().find('{').unwrap();
        assert_eq!(masked.closing(open).map(|at| masked.line_of(at)), Some(3));
        assert_eq!(BlankedSource::new("{ (").closing(0), None);
    }
}
