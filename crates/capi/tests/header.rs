//! The header in the tree is the one that this crate says.

use std::path::Path;

#[test]
fn the_header_is_made_of_this_crate() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("cbindgen.toml");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in ["error.rs", "options.rs", "actions.rs", "table.rs", "reader.rs"] {
        builder = builder.with_src(here.join("src").join(source));
    }
    let mut made = Vec::new();
    builder.generate().expect("a header").write(&mut made);
    let made = String::from_utf8(made).expect("text");
    let path = here.join("../../c/include/libfibula.h");
    if std::env::var_os("FIBULA_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).expect("the header is written");
    }
    let is = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        is == made,
        "{} is not what the crate says: FIBULA_WRITE_HEADER=1 cargo test -p fibula-capi --test header",
        path.display()
    );
}
