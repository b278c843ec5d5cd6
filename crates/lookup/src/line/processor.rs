//! Compiles vectorised loops for several generations of processors and for several row widths.

/// Calls `$function::<W, C>` for the width of the layout's rows.
macro_rules! with_width {
    ($layout:expr, $function:ident ( $($argument:expr),* )) => {
        match $layout.row_words() {
            1 => $function::<1, 64>($($argument),*),
            2 => $function::<2, 128>($($argument),*),
            4 => $function::<4, 256>($($argument),*),
            _ => $function::<8, 512>($($argument),*),
        }
    };
}

/// Defines a function, with one version per kind of processor. All versions are compiled from `$body`.
macro_rules! by_processor {
    ($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? $body:block) => {
        $(#[$doc])*
        pub(super) fn $name($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            fn body($($argument: $type),*) $(-> $result)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,avx2,bmi1,bmi2,popcnt")]
            fn avx512($($argument: $type),*) $(-> $result)? {
                body($($argument),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi1,popcnt")]
            fn avx2($($argument: $type),*) $(-> $result)? {
                body($($argument),*)
            }
            #[cfg(target_arch = "x86_64")]
            match Processor::get() {
                // SAFETY: the processor has what the function is compiled for.
                Processor::Avx512 => return unsafe { avx512($($argument),*) },
                // SAFETY: as above.
                Processor::Avx2 => return unsafe { avx2($($argument),*) },
                Processor::Any => {}
            }
            body($($argument),*)
        }
    };
}

#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) enum Processor {
    /// AVX-512 with population counts.
    Avx512,
    Avx2,
    Any,
}

#[cfg(target_arch = "x86_64")]
impl Processor {
    pub(super) fn get() -> Self {
        use std::arch::is_x86_feature_detected as has;
        let avx2 = has!("avx2") && has!("bmi1") && has!("popcnt");
        let avx512 = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
        match avx2 {
            true if avx512 && has!("avx512vpopcntdq") && has!("bmi2") => Self::Avx512,
            true => Self::Avx2,
            false => Self::Any,
        }
    }
}

pub(super) use {by_processor, with_width};
