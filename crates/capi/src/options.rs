//! Options for creating a table.
#![expect(unsafe_code, reason = "texts and keys are pointers of a caller")]

use crate::error::{Error, Result};
use crate::pointers;
use fib::designs::{Design, Spec};
use fib::name::NameKind;
use lookup::hash::{Family, SecretKey};
use lookup::othello::Settings;
use std::ffi::{CStr, c_char};
use std::ptr;

/// The design, unless one is given.
const DESIGN: &str = "concise";
/// The designs whose tables can be read in place.
pub(crate) const DESIGNS: [&str; 5] = ["concise", "ofw", "line", "line-fast", "line-small"];
/// Most bits of a value; those of `ofw` leave room for a fingerprint.
const MOST_VALUE_BITS: u32 = 32;
const MOST_VALUE_BITS_OFW: u32 = 24;

/// Options for creating a table. Begin with `struct fibula_options options = FIBULA_OPTIONS;`.
#[repr(C)]
pub struct Options {
    /// sizeof (struct fibula_options), so that later versions can have more.
    pub bytes: usize,
    /// "concise" (also NULL), "ofw", "line", "line-fast" or "line-small". A name that was never set gets any value of
    /// concise and the lines, and mostly 0 of ofw.
    pub design: *const c_char,
    /// What names are: "mac", "ipv4", "ipv6", "5-tuple", "teid", "fixed:N" for N bytes (1 to 64), or "text". Required.
    pub names: *const c_char,
    /// How names are hashed: "muladd" (also NULL), "wy", "siphash13" or "crc32c".
    pub hash: *const c_char,
    /// The secret hash key, 32 bytes; NULL: a random one. Who has it can choose names that a table holds badly.
    pub key: *const u8,
    /// Most names. It bounds memory that is reserved, not memory that is used.
    pub max_names: u64,
    /// Bits of a value: 1 to 32 (ofw: 24); at most 16 to export, share or follow the table.
    pub value_bits: u32,
}

impl Options {
    /// Options with these fields, and what follows if the others are not set.
    pub fn of(names: &'static CStr, value_bits: u32, max_names: u64) -> Self {
        Self {
            bytes: size_of::<Self>(),
            design: ptr::null(),
            names: names.as_ptr(),
            hash: ptr::null(),
            key: ptr::null(),
            max_names,
            value_bits,
        }
    }

    /// What both halves of the table must agree on.
    /// # Safety
    /// Texts end with 0, and a key has 32 bytes.
    pub(crate) unsafe fn spec(&self) -> Result<Spec> {
        if self.bytes != size_of::<Self>() {
            let (got, expected) = (self.bytes, size_of::<Self>());
            let text = format!(
                "options have {got} bytes, {expected} expected: begin with FIBULA_OPTIONS, and use the header of this library"
            );
            return Err(Error::argument(text));
        }
        // SAFETY: the caller's.
        let [design, names, hash] = unsafe {
            [
                pointers::text("the design", self.design)?,
                pointers::text("the kind of the names", self.names)?,
                pointers::text("the hash family", self.hash)?,
            ]
        };
        let design = design.unwrap_or(DESIGN);
        if !DESIGNS.contains(&design) {
            let text = format!("there is no design `{design}` here: use {}", DESIGNS.join(", "));
            return Err(Error::argument(text));
        }
        let design = Design::by_name(design).map_err(|error| Error::argument(error.to_string()))?;
        let names = names.ok_or_else(|| Error::argument("options do not say what names are: set names, as \"mac\""))?;
        let kind: NameKind = names.parse().map_err(|error| Error::argument(format!("{error}")))?;
        let family = hash.map_or(Ok(Family::MulAdd), str::parse);
        let family = family.map_err(|error| Error::argument(error.to_string()))?;
        let most = if design.name == "ofw" { MOST_VALUE_BITS_OFW } else { MOST_VALUE_BITS };
        if !(1..=most).contains(&self.value_bits) {
            let text = format!("values of {} bits: {} has 1 to {most}", self.value_bits, design.name);
            return Err(Error::argument(text));
        }
        let max_names = usize::try_from(self.max_names).unwrap_or(usize::MAX);
        if !(1..=Settings::MAX_NAMES).contains(&max_names) {
            return Err(Error::argument(format!("max_names is {max_names}: give 1 to {}", Settings::MAX_NAMES)));
        }
        let key = match self.key.is_null() {
            true => SecretKey::random(),
            // SAFETY: the caller's.
            false => SecretKey::from_bytes(unsafe { self.key.cast::<[u8; 32]>().read() }),
        };
        Ok(Spec::new(design, kind, family, key, self.value_bits as u8, max_names))
    }
}
