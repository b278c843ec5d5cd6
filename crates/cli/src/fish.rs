//! Repairs the completion script that clap generates for fish.

use clap::{Arg, Command, ValueHint};
use std::fmt::Write as _;

/// The line of the script that parses options before the command.
const READS: &str = "argparse -s (__fish_fibula_global_optspecs) -- $cmd 2>/dev/null\n";

/// The script with two additions. The value of an option before the command is completed, as in `fibula --log-format `:
/// the line so far lacks a value, so it is parsed a second time with one. And commands below two others get their
/// options: `pki issue operator`.
pub(crate) fn mended(script: &str, syntax: &Command) -> String {
    let mut script = script.replace(READS, &format!("{READS}    or {}", READS.replace("$cmd", "$cmd value")));
    let below = |command: &Command| -> Vec<Command> {
        command.get_subcommands().filter(|command| command.get_name() != "help").cloned().collect()
    };
    for first in below(syntax) {
        for second in below(&first) {
            for third in below(&second) {
                let names = [&first, &second, &third].map(Command::get_name);
                // Options of the command above are already offered.
                let own =
                    third.get_arguments().filter(|argument| !argument.is_global_set() && !argument.is_positional());
                for argument in own.filter(|argument| !["help", "version"].contains(&argument.get_id().as_str())) {
                    let _ = writeln!(script, "{}", line(names, argument));
                }
            }
        }
    }
    script
}

fn line([first, second, third]: [&str; 3], argument: &Arg) -> String {
    let mut line = format!(
        "complete -c fibula -n \"__fish_fibula_using_subcommand {first}; and __fish_seen_subcommand_from {second}; and \
         __fish_seen_subcommand_from {third}\""
    );
    if let Some(short) = argument.get_short() {
        let _ = write!(line, " -s {short}");
    }
    if let Some(long) = argument.get_long() {
        let _ = write!(line, " -l {long}");
    }
    if let Some(help) = argument.get_help() {
        let help = help.to_string().replace('\\', "\\\\").replace('\'', "\\'");
        let _ = write!(line, " -d '{}'", help.lines().next().unwrap_or_default());
    }
    if argument.get_action().takes_values() {
        line.push_str(" -r");
        let values = argument.get_possible_values();
        let values: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
        if !values.is_empty() {
            let _ = write!(line, " -f -a \"{}\"", values.join(" "));
        } else if argument.get_value_hint() == ValueHint::Other {
            line.push_str(" -f");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fish_completes_options_before_the_command_and_three_commands_deep() {
        let mut syntax = crate::product();
        let mut script = Vec::new();
        clap_complete::generate(clap_complete::Shell::Fish, &mut syntax, "fibula", &mut script);
        let script = mended(&String::from_utf8(script).unwrap(), &syntax);
        let reads = "    argparse -s (__fish_fibula_global_optspecs) -- $cmd 2>/dev/null\n    or argparse -s \
                     (__fish_fibula_global_optspecs) -- $cmd value 2>/dev/null\n    or return\n";
        assert!(script.contains(reads), "{}", script.lines().take(20).collect::<Vec<_>>().join("\n"));
        let operator = "and __fish_seen_subcommand_from operator\"";
        let role = script.lines().find(|line| line.contains(operator) && line.contains(" -l role ")).unwrap();
        assert!(role.ends_with(" -r -f -a \"reader writer admin\""), "{role}");
        assert!(!script.lines().any(|line| line.contains(operator) && line.contains(" -l log-format")), "twice");
    }
}
