//! Inputs as text: one per line, escaped like Rust's byte strings, for reading, review and comparison.

use std::path::Path;
use std::{fs, io};

use crate::Target;

/// Returns the inputs of a target.
pub fn inputs(target: &Target) -> impl Iterator<Item = Vec<u8>> {
    target.corpus.lines().filter(|line| !line.is_empty()).map(unescaped)
}

/// Writes the inputs of a target into a folder, one file each, as libFuzzer requires.
///
/// # Errors
/// Returns an error if the folder is not writable.
pub fn unfold(target: &Target, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    inputs(target)
        .enumerate()
        .try_for_each(|(at, input)| fs::write(folder.join(format!("seed-{at:04}")), input))
}

/// Returns the files of a folder as text, the shortest first.
///
/// # Errors
/// Returns an error if the folder is not readable.
pub fn fold(folder: &Path) -> io::Result<String> {
    let files = fs::read_dir(folder)?.map(|entry| fs::read(entry?.path()));
    let mut inputs = files.collect::<io::Result<Vec<_>>>()?;
    inputs.retain(|input| !input.is_empty());
    inputs.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    inputs.dedup();
    Ok(inputs.iter().map(|input| format!("{}\n", input.escape_ascii())).collect())
}

fn unescaped(line: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(line.len()), line.as_bytes());
    while let Some((byte, behind)) = rest.split_first() {
        let (byte, behind) = match (byte, behind) {
            (b'\\', [b'x', high, low, behind @ ..]) => (hex(*high) << 4 | hex(*low), behind),
            (b'\\', [b'n', behind @ ..]) => (b'\n', behind),
            (b'\\', [b'r', behind @ ..]) => (b'\r', behind),
            (b'\\', [b't', behind @ ..]) => (b'\t', behind),
            (b'\\', [escaped, behind @ ..]) => (*escaped, behind),
            (plain, behind) => (*plain, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
    bytes
}

fn hex(digit: u8) -> u8 {
    char::from(digit).to_digit(16).and_then(|it| u8::try_from(it).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_escaping() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescaped(&all.escape_ascii().to_string()), all);
    }
}
