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
            match crate::base::processor::Kernel::get().vectors() {
                // SAFETY: the processor has what the function is compiled for.
                crate::base::processor::Vectors::Avx512Ifma => return unsafe { avx512($($argument),*) },
                crate::base::processor::Vectors::Scalar => {}
                // SAFETY: as above.
                _ => return unsafe { avx2($($argument),*) },
            }
            body($($argument),*)
        }
    };
}

pub(super) use {by_processor, with_width};
