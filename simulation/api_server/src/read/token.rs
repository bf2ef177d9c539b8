//! Continue tokens: start key and revision of the next page of a list.
//!
//! They have upstream's format and are opaque to clients.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use windlass_schema::check;

use super::Selection;
use crate::status::Status;
use crate::storage::Key;

/// The position at which a list continues.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// Revision; `None` for the latest revision, which makes the list inconsistent.
    pub(super) revision: Option<u64>,
    /// First key of the page.
    pub(super) start: Key,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

/// The only version of the token format.
const FORM: &str = "meta.k8s.io/v1";

/// Revision number that represents `None`; zero would look like a missing number.
const PRESENT: i64 = -1;

impl Token {
    /// Returns the token that continues after `last`.
    pub(super) fn behind(last: &Key, revision: u64) -> Token {
        let start = Key::new(last.namespace.clone(), format!("{}\0", last.name));
        Token { revision: Some(revision), start }
    }

    pub(super) fn encode(&self, selection: &Selection) -> String {
        let start = match selection.namespace {
            Some(_) => self.start.name.to_string(),
            None => self.start.to_string(),
        };
        let rv = self.revision.map_or(PRESENT, |it| i64::try_from(it).unwrap_or(i64::MAX));
        let wire = Wire { v: FORM.to_owned(), rv, start };
        // Two strings and a number always have an encoding.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wire).unwrap_or_default())
    }

    /// Parses a token.
    ///
    /// # Errors
    /// 400 for a text that [`Token::encode`] has not returned.
    pub(super) fn decode(text: &str, selection: &Selection) -> Result<Token, Status> {
        let wrong = |why: &str| {
            Status::bad_request(format!("invalid continue token: continue key is not valid{why}"))
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|error| {
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) => at,
                _ => text.len(),
            };
            wrong(&format!(": illegal base64 data at input byte {at}"))
        })?;
        // The scanner reads bytes.
        if let Some(why) = check::syntax_error(&bytes) {
            return Err(wrong(&format!(": {why}")));
        }
        let wire: Wire = serde_json::from_slice(&bytes).map_err(|error| wrong(&format!(": {error}")))?;
        if wire.v != FORM {
            return Err(wrong(&format!(": server does not recognize this encoded version {}", wire.v)));
        }
        if wire.rv == 0 {
            return Err(wrong(": incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
        }
        if wire.start.is_empty() {
            return Err(wrong(": encoded start key empty (version meta.k8s.io/v1)"));
        }
        if wire.start.trim_start_matches('/').split('/').any(|it| matches!(it, "" | "." | "..")) {
            return Err(wrong(&format!(": {}", wire.start)));
        }
        Ok(Token { revision: u64::try_from(wire.rv).ok(), start: start_key(&wire.start, selection) })
    }
}

fn start_key(start: &str, selection: &Selection) -> Key {
    let start = start.trim_start_matches('/');
    match (&selection.namespace, start.split_once('/')) {
        (Some(namespace), _) => Key::new(namespace.clone(), start),
        (None, Some((namespace, name))) => Key::new(namespace, name),
        (None, None) => Key::new("", start),
    }
}
