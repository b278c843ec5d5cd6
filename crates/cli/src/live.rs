//! Completions from the live network: switches, ends of links, hosts and names. The scripts of clap complete options;
//! these lines ask the controller, through the hidden `fibula live`.

use crate::remote::{Client, Remote};
use api::v1;
use clap::ValueEnum;
use command::order::natural;
use command::output::write_out;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// How long a user waits after pressing a key.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum number of offers; beyond it, none are made.
const MOST: u32 = 200;

/// The kinds of offers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub(crate) enum Kind {
    Switches,
    Pending,
    Links,
    Ports,
    Hosts,
    Seen,
    Names,
}

/// The verbs, and the kind that each takes.
const OFFERS: [(&str, &[&str], Kind); 8] = [
    ("switch", &["show", "del", "drain", "undrain", "log", "verify"], Kind::Switches),
    ("switch", &["accept"], Kind::Pending),
    ("link", &["del", "set", "drain", "undrain"], Kind::Links),
    ("host", &["del", "forget"], Kind::Hosts),
    ("host", &["accept"], Kind::Seen),
    ("name", &["show", "del", "set"], Kind::Names),
    ("trace", &[], Kind::Names),
    ("capture", &[], Kind::Ports),
];

/// Arguments of `fibula live`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to list
    kind: Kind,
    /// Only offers that begin with this
    #[arg(default_value = "", allow_hyphen_values = true)]
    prefix: String,
    #[command(flatten)]
    remote: Remote,
}

impl Args {
    /// Prints the offers, one per line. Errors are not printed: they would disturb the line being completed.
    /// # Errors
    /// When standard output is closed.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let Args { kind, prefix, remote } = self;
        let asked = prefix.clone();
        let found = remote.run(|client| async move {
            Ok(tokio::time::timeout(PATIENCE, of(client, kind, asked)).await.ok().and_then(Result::ok))
        });
        let mut found = found.ok().flatten().unwrap_or_default();
        // A terminal obeys control characters, and a shell splits words at spaces.
        found.retain(|one| one.starts_with(&prefix) && one.chars().all(|c| !c.is_control() && !c.is_whitespace()));
        found.sort_by(|a, b| natural(a, b));
        found.dedup();
        write_out(&found.into_iter().take(MOST as usize).fold(String::new(), |text, one| text + &one + "\n"))
    }
}

async fn of(mut client: Client, kind: Kind, prefix: String) -> Result<Vec<String>, tonic::Status> {
    let end = |end: Option<v1::LinkEnd>| end.map(|end| format!("{}:{}", end.switch, end.port));
    Ok(match kind {
        Kind::Switches => {
            let list = client.list_switches(v1::ListSwitchesRequest {}).await?.into_inner();
            list.switches.into_iter().map(|switch| switch.name).collect()
        }
        Kind::Pending => {
            let list = client.list_switches(v1::ListSwitchesRequest {}).await?.into_inner();
            list.pending.into_iter().map(|switch| switch.name).collect()
        }
        Kind::Links => {
            let list = client.list_links(v1::ListLinksRequest {}).await?.into_inner();
            list.links.into_iter().flat_map(|link| [end(link.a), end(link.b)]).flatten().collect()
        }
        // In the notation of `capture`: all ports of a switch, or one.
        Kind::Ports => {
            let switches = client.list_switches(v1::ListSwitchesRequest {}).await?.into_inner().switches;
            let links = client.list_links(v1::ListLinksRequest {}).await?.into_inner().links;
            let all = switches.into_iter().map(|switch| format!("{}:all", switch.name));
            all.chain(links.into_iter().flat_map(|link| [end(link.a), end(link.b)]).flatten()).collect()
        }
        Kind::Hosts => {
            let list = client.list_hosts(v1::ListHostsRequest {}).await?.into_inner();
            list.hosts.into_iter().map(|host| host.name).collect()
        }
        Kind::Seen => {
            let list = client.list_hosts(v1::ListHostsRequest {}).await?.into_inner();
            list.unknown.into_iter().map(|host| host.name).collect()
        }
        Kind::Names => {
            let ask = v1::ListNamesRequest { limit: MOST, prefix, ..v1::ListNamesRequest::default() };
            client.list_names(ask).await?.into_inner().names.into_iter().map(|name| name.name).collect()
        }
    })
}

/// The first words of lines, grouped by the kind they take: `switch show`, or `trace` alone.
fn lines() -> BTreeMap<&'static str, Vec<String>> {
    let mut lines: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (noun, verbs, kind) in OFFERS {
        let word = match kind {
            Kind::Switches => "switches",
            Kind::Pending => "pending",
            Kind::Links => "links",
            Kind::Ports => "ports",
            Kind::Hosts => "hosts",
            Kind::Seen => "seen",
            Kind::Names => "names",
        };
        let of = lines.entry(word).or_default();
        match verbs {
            [] => of.push(noun.to_owned()),
            verbs => of.extend(verbs.iter().map(|verb| format!("{noun} {verb}"))),
        }
    }
    lines
}

/// The script of a shell, with additions that ask the network; scripts of other shells stay unchanged.
pub(crate) fn with_offers(script: &str, shell: clap_complete::Shell) -> String {
    match shell {
        clap_complete::Shell::Bash => bash(script),
        clap_complete::Shell::Zsh => zsh(script),
        clap_complete::Shell::Fish => fish(script),
        _ => script.to_owned(),
    }
}

/// `"switch show"|"switch del"`, and `"trace "*` for a word alone.
fn patterns(of: &[String]) -> String {
    let pattern = |line: &String| match line.split_once(' ') {
        Some(_) => format!("\"{line}\""),
        None => format!("\"{line} \"*"),
    };
    of.iter().map(pattern).collect::<Vec<_>>().join("|")
}

fn bash(script: &str) -> String {
    let mut arms = String::new();
    for (kind, of) in lines() {
        let _ = writeln!(arms, "        {}) kind={kind} ;;", patterns(&of));
    }
    // bash splits words at colons, which names and ends of links contain, so everything before the last colon is not
    // inserted again.
    format!(
        "{script}
_fibula_live() {{
    _fibula \"$@\"
    local line=\"${{COMP_LINE:0:COMP_POINT}}\" kind= one
    local word=\"${{line##* }}\"
    [[ \"$word\" == -* ]] && return 0
    case \"${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}\" in
{arms}    esac
    [[ -n \"$kind\" ]] || return 0
    COMPREPLY=()
    while read -r one; do COMPREPLY+=(\"${{one#\"${{word%\"${{word##*:}}\"}}\"}}\"); done < <(fibula live $kind \"$word\" 2>/dev/null)
}}
complete -F _fibula_live -o bashdefault -o default fibula
"
    )
}

fn zsh(script: &str) -> String {
    let mut arms = String::new();
    for (kind, of) in lines() {
        let _ = writeln!(arms, "        {}) kind={kind} ;;", patterns(&of));
    }
    let offers = format!(
        "_fibula_live() {{
    local -a typed found
    local kind=
    typed=(\"${{words[@]}}\")
    _fibula \"$@\"
    case \"${{typed[2]}} ${{typed[3]}}\" in
{arms}    esac
    [[ -n \"$kind\" && \"$PREFIX\" != -* ]] || return 0
    found=(${{(f)\"$(fibula live $kind \"$PREFIX\" 2>/dev/null)\"}})
    (( $#found )) && compadd -a found
}}

"
    );
    // Its last lines call the function, or register it.
    let (body, end) = script.rsplit_once("if [ \"$funcstack[1]\"").unwrap_or((script, ""));
    let end = end
        .replace("_fibula \"$@\"", "_fibula_live \"$@\"")
        .replace("compdef _fibula fibula", "compdef _fibula_live fibula");
    if end.is_empty() { script.to_owned() } else { format!("{body}{offers}if [ \"$funcstack[1]\"{end}") }
}

fn fish(script: &str) -> String {
    let mut text = script.to_owned();
    for (kind, of) in lines() {
        for line in of {
            let condition = match line.split_once(' ') {
                Some((noun, verb)) => {
                    format!("__fish_fibula_using_subcommand {noun}; and __fish_seen_subcommand_from {verb}")
                }
                None => format!("__fish_fibula_using_subcommand {line}"),
            };
            let _ = writeln!(
                text,
                "complete -c fibula -n \"{condition}\" -f -a \"(fibula live {kind} (commandline -ct) 2>/dev/null)\""
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_that_is_offered_for_is_a_command() {
        let syntax = crate::product();
        for line in lines().into_values().flatten() {
            let mut command = &syntax;
            for word in line.split(' ') {
                command = command.find_subcommand(word).unwrap_or_else(|| panic!("there is no `{line}`"));
            }
            assert!(command.get_positionals().next().is_some(), "`{line}` takes nothing");
        }
    }

    #[test]
    fn scripts_of_shells_ask_the_network() {
        let mut syntax = crate::product();
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut syntax, "fibula", &mut script);
            let script = with_offers(&String::from_utf8(script).unwrap(), shell);
            assert!(script.contains("fibula live "), "{shell}");
            let is_registered = match shell {
                clap_complete::Shell::Bash => {
                    script.trim_end().ends_with("complete -F _fibula_live -o bashdefault -o default fibula")
                }
                clap_complete::Shell::Zsh => {
                    script.contains("    _fibula_live \"$@\"\nelse\n    compdef _fibula_live fibula")
                }
                _ => script.contains("__fish_seen_subcommand_from drain\" -f -a \"(fibula live switches"),
            };
            assert!(is_registered, "{shell}: {}", script.lines().rev().take(30).collect::<Vec<_>>().join("\n"));
        }
    }
}
