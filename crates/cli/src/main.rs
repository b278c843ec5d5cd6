//! The one binary, `fibula`: noun, then verb.

fn main() {}
