//! What operators say about what may be learnt.

use serde::Deserialize;

/// What may be learnt.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Whether names seen at ports with `learn = "accept"` are learnt; otherwise they are listed.
    #[serde(default = "yes")]
    pub accept: bool,
    /// The most learnt names that a port may have, whatever its switch says.
    #[serde(default = "default_max_names")]
    pub max_names_per_port: u32,
    /// The most learnt names that a switch may have.
    #[serde(default = "default_max_of_switch")]
    pub max_names_per_switch: u32,
}

fn yes() -> bool {
    true
}

fn default_max_names() -> u32 {
    1024
}

fn default_max_of_switch() -> u32 {
    65_536
}

impl Default for Settings {
    fn default() -> Self {
        Self { accept: yes(), max_names_per_port: default_max_names(), max_names_per_switch: default_max_of_switch() }
    }
}
