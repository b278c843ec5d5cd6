//! The tests that `docs/reliability.md` names for its claims.

use std::path::Path;

#[test]
fn tests_that_the_threat_model_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/reliability.md")).unwrap();
    let mut n_tests = 0;
    for row in page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | `crates/")) {
        let (file, tests) = row.1.split_once("`: ").unwrap_or_else(|| panic!("no tests in {}", row.1));
        let source = std::fs::read_to_string(root.join("crates").join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        for test in tests.split('`').filter(|name| name.contains('_')) {
            assert!(source.contains(&format!("fn {test}()")), "{file} has no {test}");
            n_tests += 1;
        }
    }
    assert!(n_tests > 12, "{n_tests}");
}
