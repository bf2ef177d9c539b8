//! Snapshots in a file, so that a demo can be resumed.
//!
//! The first line is JSON with the format, the revision and the number of objects. Each further line is one object.
//!
//! Guarantees:
//! - The file is replaced atomically: a reader finds the old snapshot or the new one.
//! - A restored storage has the snapshot's revision, also as its floor. Watches from an older revision fail with 410.
//!
//! Files of another format, truncated files and inconsistent files are rejected.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::memory::State;
use super::{Collection, InMemoryStorage, Key, MemoryOptions, Stored};

/// The error of writing or reading a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// A file operation failed.
    #[error("the snapshot {} cannot be {verb}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Failed operation, as a participle.
        verb: &'static str,
        /// Cause.
        source: io::Error,
    },
    /// The file has another format.
    #[error("cannot read snapshot {}: unknown format {found:?}; expected {FORMAT:?}", path.display())]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Format in the file.
        found: String,
    },
    /// The file is damaged.
    #[error("the snapshot {} is damaged at line {line}: {why}", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Line number.
        line: usize,
        /// Cause.
        why: String,
    },
}

/// The only supported format.
const FORMAT: &str = "windlass-objects/1";

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    #[serde(default)]
    revision: u64,
    #[serde(default)]
    objects: usize,
}

#[derive(Serialize)]
struct Written<'a> {
    group: &'a str,
    resource: &'a str,
    namespace: &'a str,
    name: &'a str,
    revision: u64,
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Read<'a> {
    group: String,
    resource: String,
    namespace: String,
    name: String,
    revision: u64,
    /// Parsed separately, because the outer object would reduce the allowed nesting.
    #[serde(borrow)]
    object: &'a RawValue,
}

impl InMemoryStorage {
    /// Writes a snapshot of all objects to a file. Writes to the storage continue meanwhile.
    ///
    /// # Errors
    /// [`SnapshotError::File`]. An existing snapshot stays unchanged.
    pub fn snapshot_to(&self, path: &Path) -> Result<(), SnapshotError> {
        let (revision, objects) = self.everything();
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".new");
        let temporary = PathBuf::from(temporary);
        let failed = |verb| {
            let path = path.to_owned();
            move |source| SnapshotError::File { path, verb, source }
        };
        if let Err(error) = write(&temporary, revision, &objects) {
            // Report the write error; the incomplete file is useless.
            drop(fs::remove_file(&temporary));
            return Err(failed("written")(error));
        }
        fs::rename(&temporary, path).map_err(failed("replaced"))?;
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("made durable"))
    }

    /// Restores a storage from a snapshot.
    ///
    /// # Errors
    /// If the file cannot be read, has another format, or is damaged.
    pub fn restore_from(path: &Path, options: MemoryOptions) -> Result<InMemoryStorage, SnapshotError> {
        let read = |source| SnapshotError::File { path: path.to_owned(), verb: "read", source };
        let damaged = |line, why| SnapshotError::Damaged { path: path.to_owned(), line, why };
        let mut lines = BufReader::new(File::open(path).map_err(read)?).lines();
        let first = lines.next().transpose().map_err(read)?.unwrap_or_default();
        let header: Header = match serde_json::from_str(&first) {
            Ok(Header { format, .. }) if format != FORMAT => {
                return Err(SnapshotError::Format { path: path.to_owned(), found: format });
            }
            Ok(header) => header,
            Err(error) => return Err(damaged(1, error.to_string())),
        };
        let (mut state, mut line) = (State::restored(header.revision), 1);
        for text in lines {
            line += 1;
            restore(&mut state, &text.map_err(read)?).map_err(|why| damaged(line, why))?;
        }
        match line - 1 == header.objects {
            true => Ok(InMemoryStorage::of(state, options)),
            false => {
                Err(damaged(line, format!("the file ends after {} of {} objects", line - 1, header.objects)))
            }
        }
    }
}

type Objects = Vec<(Collection, Arc<Stored>)>;

fn write(path: &Path, revision: u64, objects: &Objects) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let header = Header { format: FORMAT.to_owned(), revision, objects: objects.len() };
    serde_json::to_writer(&mut file, &header)?;
    for (collection, stored) in objects {
        file.write_all(b"\n")?;
        let line = Written {
            group: &collection.group,
            resource: &collection.resource,
            namespace: &stored.key.namespace,
            name: &stored.key.name,
            revision: stored.revision,
            object: serde_json::from_slice(&stored.bytes)?,
        };
        serde_json::to_writer(&mut file, &line)?;
    }
    file.write_all(b"\n")?;
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

fn restore(state: &mut State, line: &str) -> Result<(), String> {
    let read: Read<'_> = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let object: Value = serde_json::from_str(read.object.get()).map_err(|error| error.to_string())?;
    let key = Key::new(read.namespace, read.name);
    let stored = Stored::encode(key, read.revision, object).map_err(|error| error.to_string())?;
    state.put_back(&Collection::new(read.group, read.resource), &stored)
}
