//! Benchmarks and peers side by side; later every table and figure of the papers.
