//! `fibula group`: the subscriptions to multicast groups.

use crate::remote::{Client, answer};
use crate::rib::Verbs;
use api::v1;
use command::output::{Output, note};
use command::visible::shell_word;
use serde::Serialize;

/// The verbs of `fibula group`.
#[derive(clap::Subcommand)]
pub(crate) enum Verb {
    /// List the multicast groups that hosts have joined, with each subscribed name
    ///
    /// For the tenants in `[groups]` in controller.toml. Groups that every name hears without joining are not listed.
    List {
        /// Only this group
        #[arg(long)]
        group: Option<std::net::IpAddr>,
        /// Only this tenant
        #[arg(long)]
        tenant: Option<u32>,
        /// Only this name
        #[arg(long, default_value = "", hide_default_value = true)]
        name: String,
        /// Start after this row, given as tenant, group and name: `7,239.1.2.3,02:00:00:00:00:01`
        #[arg(long)]
        after: Option<After>,
        /// Maximum number of rows, up to 10,000
        #[arg(long, default_value_t = 1000)]
        limit: u32,
    },
}

/// A row of the list.
#[derive(Clone)]
pub(crate) struct After {
    tenant: u32,
    group: String,
    name: String,
}

impl std::str::FromStr for After {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.splitn(3, ',');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        let (Some(tenant), Some(group), Some(name)) = (next(), next(), next()) else {
            return Err("write tenant, group and name, separated by commas");
        };
        let tenant = tenant.parse().map_err(|_| "the tenant, which comes first, is not a number")?;
        Ok(Self { tenant, group: group.to_owned(), name: name.to_owned() })
    }
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
        let Verb::List { group, tenant, name, after, limit } = self;
        let group = group.map(|group| group.to_string()).unwrap_or_default();
        let after = after.map(|After { tenant, group, name }| v1::Subscribed { tenant, group, name, at: None });
        let ask = v1::ListGroupsRequest { after, limit, group, tenant, name };
        let list = answer(client.list_groups(ask).await)?;
        let next = list.subscribed.last().filter(|_| list.more);
        let next = next.map(|last| format!("{},{},{}", last.tenant, last.group, last.name));
        let row = |v1::Subscribed { tenant, group, name, at }| Row {
            tenant,
            group,
            name,
            at: at.map(|end| format!("{}:{}", end.switch, end.port)).unwrap_or_default(),
        };
        out.rows(&list.subscribed.into_iter().map(row).collect::<Vec<_>>())?;
        if let Some(next) = next {
            note(format!("there are more; continue with --after {}", shell_word(&next)));
        }
        for tenant in list.crowded {
            eprintln!("fibula: tenant {tenant} has more names than groups.max_names: its broadcasts are not carried");
        }
        if list.tenants.is_empty() {
            eprintln!("fibula: multicasts are carried for no tenant: see [groups] in controller.toml");
        } else if !list.snooping {
            eprintln!("fibula: snooping = false: each multicast reaches the whole tenant of its sender");
        }
        Ok(())
    }
}
