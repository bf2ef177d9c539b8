//! Lists and gets at a resource version.
//!
//! Requests for the latest version read from storage; all others read from the server's view, which can be stale.

use std::sync::Arc;
use std::time::Duration;

use windlass_env::Env;

use super::token::Token;
use super::version::{self, forbidden, invalid_options, unknown_match};
use super::{ReadView, Selection};
use crate::status::Status;
use crate::storage::{Collection, Key, Snapshot, StorageError, Stored};

/// List parameters of a request. An empty field was not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Maximum number of items; zero for no limit.
    pub limit: u64,
    /// Continue token of the previous page.
    pub continue_: String,
    /// Resource version.
    pub resource_version: String,
    /// Interpretation of the resource version.
    pub resource_version_match: String,
    /// Parameter `sendInitialEvents`, which only watches accept.
    pub send_initial_events: Option<bool>,
}

/// A list, or one page of it.
#[derive(Clone, Debug)]
pub struct ListResponse {
    /// Objects by namespace and name.
    pub items: Vec<Arc<Stored>>,
    /// Revision of all pages.
    pub revision: u64,
    /// Continue token of the next page.
    pub continue_: Option<String>,
    /// Number of items after this page; known only without selectors. Objects of other shards count, as upstream.
    pub remaining: Option<u64>,
}

/// Maximum wait for a view to reach the requested version, as upstream.
pub(super) const FRESH_WITHIN: Duration = Duration::from_secs(3);

/// `Retry-After` in seconds for a version that the view has not reached.
pub(super) const RETRY_SECONDS: u32 = 1;

/// The data source of a request.
enum Source {
    /// Storage at its latest revision.
    Latest,
    /// The view, once it has reached this revision.
    AtLeast(u64),
    /// Exactly this revision, which the view must have reached.
    Exactly(u64),
}

/// Lists a collection.
///
/// # Errors
/// 400 and 422 for invalid options, 410 if the version is no longer kept, 504 if the version is in the future (see
/// [`settle`]).
pub fn list(
    view: &ReadView,
    collection: &Collection,
    selection: &Selection,
    options: &ListOptions,
) -> Result<ListResponse, Status> {
    options.check()?;
    let (source, start) = options.source(selection)?;
    let snapshot = source.read(view, collection).map_err(|error| refuse(error, start.as_ref(), selection))?;
    // Upstream serves version 0 from its cache, which ignores the limit.
    let limit = if options.resource_version == "0" { 0 } else { options.limit };
    Ok(page(&snapshot, selection, start, limit))
}

/// Returns one object: the latest state, or, with a version, the state in the view.
///
/// # Errors
/// 504 for a version in the future, 500 (as upstream) for an invalid version.
pub fn get(
    view: &ReadView,
    collection: &Collection,
    key: &Key,
    resource_version: &str,
) -> Result<Option<Arc<Stored>>, Status> {
    let refuse = if is_cached(collection) { version::unexpected } else { version::invalid };
    let asked = version::parse(resource_version).map_err(refuse)?;
    let seen = !view.is_frozen() && asked <= view.revision();
    if seen || resource_version.is_empty() {
        return Ok(view.storage().get(collection, key));
    }
    let snapshot = Source::AtLeast(asked).read(view, collection).map_err(|error| refuse_future(&error))?;
    Ok(snapshot.objects.get(key).map(Stored::parsable_copy))
}

/// Returns whether upstream reads a collection from a cache. Only events have none.
fn is_cached(collection: &Collection) -> bool {
    *collection != Collection::new("", "events")
}

/// Waits up to three seconds, as upstream, for the view to reach the version of a list or get. Call it before
/// [`list`] if clients can request versions in the future.
///
/// # Cancel safety
/// Dropping the future cancels the wait.
pub async fn settle(env: &Env, view: &ReadView, resource_version: &str) {
    if let Ok(asked) = version::parse(resource_version) {
        view.reaches(env, asked, FRESH_WITHIN).await;
    }
}

impl ListOptions {
    /// Validates the options.
    ///
    /// # Errors
    /// 422 for invalid options.
    pub(crate) fn check(&self) -> Result<(), Status> {
        const FIELD: &str = "resourceVersionMatch";
        let mut causes = Vec::new();
        let wanted = &*self.resource_version_match;
        let given = !wanted.is_empty();
        if given && self.resource_version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.push(forbidden(FIELD, why));
        }
        if given && !self.continue_.is_empty() {
            causes.push(forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided"));
        }
        if !matches!(wanted, "" | "Exact" | "NotOlderThan") {
            causes.push(unknown_match(wanted, &["Exact", "NotOlderThan", ""]));
        }
        if wanted == "Exact" && self.resource_version == "0" {
            let why = r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#;
            causes.push(forbidden(FIELD, why));
        }
        if self.send_initial_events.is_some() {
            causes.push(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        invalid_options(causes)
    }

    fn source(&self, selection: &Selection) -> Result<(Source, Option<Token>), Status> {
        if !self.continue_.is_empty() {
            let token = Token::decode(&self.continue_, selection)?;
            if !matches!(&*self.resource_version, "" | "0") {
                let why = "specifying resource version is not allowed when using continue";
                return Err(Status::bad_request(why));
            }
            return Ok((token.revision.map_or(Source::Latest, Source::Exactly), Some(token)));
        }
        let asked = version::parse(&self.resource_version).map_err(version::invalid)?;
        // A limited list at a version is exact by default, for compatibility.
        let exactly = match &*self.resource_version_match {
            "Exact" => true,
            "" => self.limit > 0 && asked > 0,
            _ => false,
        };
        let source = match (&*self.resource_version, exactly) {
            ("", _) => Source::Latest,
            (_, true) => Source::Exactly(asked),
            (_, false) => Source::AtLeast(asked),
        };
        Ok((source, None))
    }
}

impl Source {
    fn read(&self, view: &ReadView, collection: &Collection) -> Result<Snapshot, StorageError> {
        match *self {
            Source::Latest => view.storage().read(collection, None),
            Source::Exactly(revision) => view.exactly(collection, revision),
            Source::AtLeast(asked) => {
                let snapshot = view.shown(collection);
                let current = snapshot.revision;
                if current < asked { Err(StorageError::Future { asked, current }) } else { Ok(snapshot) }
            }
        }
    }
}

fn page(snapshot: &Snapshot, selection: &Selection, start: Option<Token>, limit: u64) -> ListResponse {
    let mut seen = 0;
    let range = selection.range(&snapshot.objects, start.map(|it| it.start));
    let mut rest = range.inspect(|_| seen += 1);
    let most = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
    let items: Vec<_> = rest.by_ref().filter(|it| selection.selects(it)).take(most).cloned().collect();
    let mut listed = ListResponse { items, revision: snapshot.revision, continue_: None, remaining: None };
    // A page that is not full is the last one.
    let (true, Some(last)) = (listed.items.len() == most, listed.items.last()) else { return listed };
    let more = rest.next().is_some();
    if selection.is_unfiltered() {
        rest.by_ref().for_each(drop);
    }
    drop(rest);
    if more {
        listed.continue_ = Some(Token::behind(&last.key, snapshot.revision).encode(selection));
        listed.remaining = selection.is_unfiltered().then(|| u64::try_from(seen - most).unwrap_or(u64::MAX));
    }
    listed
}

fn refuse(error: StorageError, start: Option<&Token>, selection: &Selection) -> Status {
    const CONTINUE: &str = "The provided continue parameter is too old to display a consistent list result. You can \
        start a new list without the continue parameter, or use the continue token in this response to retrieve the \
        remainder of the results. Continuing with the provided token results in an inconsistent list - objects that \
        were created, modified, or deleted between the time the first chunk was returned and now may show up in the \
        list.";
    match (&error, start) {
        (StorageError::Compacted { .. }, None) => {
            Status::expired("The resourceVersion for the provided list is too old.")
        }
        (StorageError::Compacted { .. }, Some(token)) => {
            let inconsistent = Token { revision: None, start: token.start.clone() };
            Status::expired(CONTINUE).continued_by(inconsistent.encode(selection))
        }
        _ => refuse_future(&error),
    }
}

fn refuse_future(error: &StorageError) -> Status {
    match *error {
        StorageError::Future { asked, current } => {
            Status::too_large_resource_version(asked, current, RETRY_SECONDS)
        }
        _ => Status::internal(error),
    }
}
