//! The operator's binary, `fibula`. All of it is in the library, which the laboratory's binary runs, too.

fn main() -> std::process::ExitCode {
    fibula_cli::main()
}
