//! The constants of a program.

use lookup::base::root::Form;

/// The program's constants: `struct settings` of `forward.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Settings {
    a: [u64; 2],
    addend: u64,
    per_word: u64,
    /// The address of the arena, or the mask of an array's words.
    place: u64,
    is_line: u32,
    value_bits: u32,
    cell_bits: u32,
    cells_a_word: u32,
    parts: u32,
    starts: [u16; 6],
    kind: u32,
    slot: u32,
}

pub(super) const SETTINGS_BYTES: usize = size_of::<Settings>();

impl Settings {
    pub(super) fn bytes(&self) -> [u8; SETTINGS_BYTES] {
        let mut bytes = Vec::with_capacity(SETTINGS_BYTES);
        for word in [self.a[0], self.a[1], self.addend, self.per_word, self.place] {
            bytes.extend(word.to_ne_bytes());
        }
        for half in [self.is_line, self.value_bits, self.cell_bits, self.cells_a_word, self.parts] {
            bytes.extend(half.to_ne_bytes());
        }
        self.starts.iter().for_each(|start| bytes.extend(start.to_ne_bytes()));
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend(self.slot.to_ne_bytes());
        bytes.try_into().expect("the fields leave no gap")
    }

    /// The constants for names of a kind (in the program's numbers), with those of their hash, in a table at a place.
    pub(super) fn new(kind: u32, [low, high, addend]: [u64; 3], place: u64, form: Form) -> Self {
        Self { a: [low, high], addend, place, kind, ..Self::default() }.with_form(form)
    }

    /// The values that follow from the form of a table, as in `fibula.h`.
    fn with_form(mut self, form: Form) -> Self {
        let Form { structure, value_bits, fingerprint_bits, cells_of_name } = form;
        let cell_bits = u32::from(value_bits) + u32::from(fingerprint_bits);
        (self.is_line, self.value_bits, self.cell_bits) = ((structure == 1).into(), value_bits.into(), cell_bits);
        (self.cells_a_word, self.parts) = (64 / cell_bits, cells_of_name.into());
        self.per_word = (1 << 37) / u64::from(self.cells_a_word) + 1;
        if structure == 1 {
            // The header takes the first slots of a bucket.
            let first = 16_u32.div_ceil(value_bits.into());
            let words = if value_bits <= 8 { 8 } else { 16 };
            let n = words * self.cells_a_word - first;
            for (j, start) in (0..=self.parts).zip(&mut self.starts) {
                *start = (first + n * j / self.parts) as u16;
            }
        }
        self
    }
}
