//! Serves an empty cluster on loopback: `cargo run -p windlass-api-server --example serve -- 8001 kubeconfig.yaml`.

use std::error::Error;

use tokio::net::TcpListener;
use windlass_api_server::{ApiServer, ApiServerOptions};
use windlass_env::Env;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().map_or(Ok(8001), |port| port.parse())?;
    let server = ApiServer::new(&Env::system("serve"), ApiServerOptions::default());
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let kubeconfig = server.kubeconfig(listener.local_addr()?);
    if let Some(path) = arguments.next() {
        std::fs::write(path, kubeconfig)?;
    }
    Ok(server.serve(listener).await?)
}
