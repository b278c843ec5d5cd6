#[path = "structures/rules.rs"]
mod rules;
