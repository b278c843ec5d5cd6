//! The commands of a binary as data, so that the completions of `fibula` include those of `fibula-lab`.

use clap::builder::{Resettable, Str, StyledStr};
use clap::{Arg, ArgAction, Command, ValueHint};
use serde::{Deserialize, Serialize};

/// A command with its arguments and the commands below it.
#[derive(Serialize, Deserialize, PartialEq, Debug, Default)]
pub struct Tree {
    /// The word that the user types.
    pub name: String,
    /// A one-line description.
    pub about: String,
    /// Its options and positional arguments.
    pub arguments: Vec<Argument>,
    /// The commands below it.
    pub commands: Vec<Tree>,
}

/// An argument of a command.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
pub struct Argument {
    id: String,
    long: Option<String>,
    short: Option<char>,
    help: String,
    takes_value: bool,
    takes_many: bool,
    is_path: bool,
    values: Vec<String>,
}

impl From<&Command> for Tree {
    fn from(command: &Command) -> Self {
        let text = |about: Option<&StyledStr>| about.map(ToString::to_string).unwrap_or_default();
        let argument = |arg: &Arg| Argument {
            id: arg.get_id().to_string(),
            long: arg.get_long().map(str::to_owned),
            short: arg.get_short(),
            help: text(arg.get_help()),
            takes_value: arg.get_action().takes_values(),
            takes_many: matches!(arg.get_action(), ArgAction::Append),
            is_path: arg.get_value_hint() == ValueHint::AnyPath,
            values: arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect(),
        };
        Self {
            name: command.get_name().to_owned(),
            about: text(command.get_about()),
            arguments: command.get_arguments().map(argument).collect(),
            commands: command.get_subcommands().filter(|command| !command.is_hide_set()).map(Self::from).collect(),
        }
    }
}

impl From<Argument> for Arg {
    fn from(argument: Argument) -> Self {
        let action = match (argument.takes_value, argument.takes_many) {
            (false, _) => ArgAction::SetTrue,
            (true, false) => ArgAction::Set,
            (true, true) => ArgAction::Append,
        };
        let long = Resettable::from(argument.long.map(Str::from));
        let mut arg = Arg::new(argument.id).long(long).short(argument.short).help(argument.help).action(action);
        if argument.is_path {
            arg = arg.value_hint(ValueHint::AnyPath);
        }
        if argument.values.is_empty() { arg } else { arg.value_parser(argument.values) }
    }
}

impl Tree {
    /// A command whose subcommands are not known.
    pub fn leaf(name: &str, about: &str) -> Self {
        Self { name: name.to_owned(), about: about.to_owned(), ..Self::default() }
    }

    /// Adds this command below `parent`, or, if `parent` has a command of that name, adds this command's subcommands to
    /// it.
    pub fn graft(self, parent: Command) -> Command {
        if parent.find_subcommand(&self.name).is_some() {
            let commands = self.commands;
            return parent
                .mut_subcommand(self.name, |command| commands.into_iter().fold(command, |c, tree| tree.graft(c)));
        }
        let command = Command::new(self.name).about(self.about).args(self.arguments);
        parent.subcommand(self.commands.into_iter().fold(command, |command, tree| tree.graft(command)))
    }

    /// Whether these words begin with the path from this command to one without subcommands.
    pub fn leads(&self, words: &[String]) -> bool {
        let Some((first, rest)) = words.split_first() else { return false };
        *first == self.name && (self.commands.is_empty() || self.commands.iter().any(|tree| tree.leads(rest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laboratory() -> Command {
        let sizes = Arg::new("n").short('n').long("names").help("How many").action(ArgAction::Append);
        let order = Arg::new("order").long("order").value_parser(["random", "sorted"]);
        let file = Arg::new("file").value_hint(ValueHint::AnyPath);
        let test = Command::new("hash-test").about("Test").args([sizes, order, file]);
        Command::new("lab").subcommand(Command::new("filter").about("Filters").subcommand(test))
    }

    #[test]
    fn grafted_commands_are_the_ones_that_were_described() {
        let described: Vec<Tree> = Tree::from(&laboratory()).commands;
        let json = serde_json::to_string(&described).unwrap();
        let trees: Vec<Tree> = serde_json::from_str(&json).unwrap();
        let product = Command::new("fibula").subcommand(Command::new("filter").about("All filters"));
        let grafted = trees.into_iter().fold(product, |command, tree| tree.graft(command));
        let filter = grafted.find_subcommand("filter").unwrap();
        assert_eq!(filter.get_about().unwrap().to_string(), "All filters");
        assert_eq!(Tree::from(filter).commands, described[0].commands);
        let matches = grafted.try_get_matches_from(["fibula", "filter", "hash-test", "-n", "1", "-n", "2", "list"]);
        let matches = matches.unwrap();
        let (_, matches) = matches.subcommand_matches("filter").unwrap().subcommand().unwrap();
        assert_eq!(matches.get_many::<String>("n").unwrap().collect::<Vec<_>>(), ["1", "2"]);
    }

    #[test]
    fn words_lead_to_a_command_that_has_none_below_it() {
        let tree = &Tree::from(&laboratory()).commands[0];
        let leads = |words: &[&str]| tree.leads(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        assert!(leads(&["filter", "hash-test"]) && leads(&["filter", "hash-test", "list"]));
        assert!(!leads(&["filter"]) && !leads(&["filter", "build", "hash-test"]) && !leads(&["hash-test"]));
    }
}
