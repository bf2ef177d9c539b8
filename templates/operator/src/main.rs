//! The program: `site-operator --help`.

use site_operator::Sites;
use site_operator::dns::Dns;
use site_operator::webhooks::webhooks;
use windlass::prelude::*;

/// The allocator of static binaries: that of musl has one lock for all threads.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> Result<(), windlass::Error> {
    let sites = Registration::controller_with::<Sites>(Dns::default());
    windlass::run("site-operator", [sites, webhooks().into()]).await
}
