//! `fibula group`: who wants which multicasts.

use crate::remote::{Client, answer};
use crate::rib::Verbs;
use api::v1;
use command::output::Output;
use serde::Serialize;

/// The verbs of `fibula group`.
#[derive(clap::Subcommand)]
pub(crate) enum Verb {
    /// List the multicast groups that hosts have joined, with each name that wants one
    ///
    /// Of the tenants in `[groups]` in controller.toml. Groups that everybody hears need not be joined, and are not listed.
    List {
        /// Only this group
        #[arg(long)]
        group: Option<std::net::IpAddr>,
        /// Only this tenant
        #[arg(long)]
        tenant: Option<u32>,
    },
}

#[derive(Serialize)]
struct Row {
    tenant: u32,
    group: String,
    name: String,
    /// The port, as switch:port.
    at: String,
}

impl Verbs for Verb {
    async fn run(self, mut client: Client, out: &Output) -> anyhow::Result<()> {
        let Verb::List { group, tenant } = self;
        let list = answer(client.list_groups(v1::ListGroupsRequest {}).await)?;
        let group = group.map(|group| group.to_string());
        let is_asked = |row: &Row| {
            group.as_ref().is_none_or(|group| *group == row.group) && tenant.is_none_or(|tenant| tenant == row.tenant)
        };
        let row = |v1::Subscribed { tenant, group, name, at }| Row {
            tenant,
            group,
            name,
            at: at.map(|end| format!("{}:{}", end.switch, end.port)).unwrap_or_default(),
        };
        out.rows(&list.subscribed.into_iter().map(row).filter(is_asked).collect::<Vec<_>>())?;
        if list.tenants.is_empty() {
            eprintln!("fibula: no tenant hears multicasts: see [groups] in controller.toml");
        } else if !list.snooping {
            eprintln!("fibula: snooping = false: a multicast is heard by the whole tenant of its sender");
        }
        Ok(())
    }
}
