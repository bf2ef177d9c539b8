//! Sites: the controller of `several_kinds` as an operator, with health, metrics and an answer to `windlass explain` for
//! whoever is on the same machine.
//!
//! ```sh
//! cargo run -p windlass-examples --bin sites -- ~/.kube/config 127.0.0.1:10357
//! cargo run -- explain site-keeper shop/web --server=http://127.0.0.1:10357
//! ```
//!
//! It may be started before its kind is installed: it waits, and says so.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use windlass::admin::AdminConfig;
use windlass::prelude::*;
use windlass_examples::several_kinds::SiteKeeper;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    rustls::crypto::ring::default_provider().install_default().expect("nobody installed one before");
    tracing_subscriber::fmt().init();
    let env = Env::system("sites");
    let mut words = std::env::args().skip(1);
    let usage = "say sites <kubeconfig> <address of the admin server, such as 127.0.0.1:10357>";
    let kubeconfig = words.next().map(PathBuf::from).context(usage)?;
    let admin: SocketAddr = words.next().and_then(|word| word.parse().ok()).context(usage)?;

    let cluster = windlass::client::load_config(Some(&kubeconfig), None).await?;
    let mut config = ManagerConfig::new(env.rng("identity").identifier()).named("site-keeper");
    // Plain HTTP, which only loopback gets.
    config.admin = Some(AdminConfig::local(admin));
    let signals = ShutdownSignals::from_process(&env)?;
    let manager = Manager::new(env, config, cluster)?.register(Registration::of::<SiteKeeper>());
    Ok(manager.run(signals).await?)
}
