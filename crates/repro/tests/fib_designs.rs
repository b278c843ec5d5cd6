//! `fibula-lab fib compare` and `fibula-lab fib advise`, with all designs: what holds of those of `fibula` holds here.

#[path = "../../cli/tests/fib_designs.rs"]
mod fib_designs;
