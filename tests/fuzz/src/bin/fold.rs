//! Prints the files of a folder in the format of a corpus, for `tests/fuzz/corpus`.

#![expect(clippy::print_stdout, reason = "the output is the result")]

use std::io;

fn main() -> io::Result<()> {
    let folder = std::env::args_os().nth(1);
    let folder = folder.ok_or_else(|| io::Error::other("name the folder whose files are to be folded"))?;
    print!("{}", windlass_fuzz::corpus::fold(folder.as_ref())?);
    Ok(())
}
