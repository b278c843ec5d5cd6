//! The way from a switch to its controller: what the URL leads to, told apart as far as it can be from here.

use super::{Findings, PATIENCE};
use api::address::socket_path;
use api::client;
use api::identity::Kind;
use api::tls::Tls;
use std::sync::Arc;
use tokio::net::UnixStream;

pub(super) async fn look_at_way(url: &str, tls: Option<&Arc<Tls>>, findings: &mut Findings) {
    if let Some(path) = socket_path(url) {
        match path {
            Ok(path) if UnixStream::connect(&path).await.is_ok() => {
                findings.ok("controller", format!("{url}: answers"))
            }
            _ => findings.bad("controller", format!("{url}: nobody answers; start the controller")),
        }
        return;
    }
    match client::connect_to(Kind::Controller, url, tls, PATIENCE).await {
        Ok(_) => findings.ok("controller", format!("{url}: answers")),
        Err(error) => findings.bad("controller", error.to_string().replace('\n', " ")),
    }
}
