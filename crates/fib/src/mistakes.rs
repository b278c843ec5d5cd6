//! Mistakes on purpose, which a simulation must notice. Only with the feature `kit`; the product makes none.

/// Declares the mistakes of a crate: `Mistake`, `set_mistake` and `mistaken`, by which code asks whether to make one. The crate has a
/// feature `kit`, without which no mistake is made.
#[macro_export]
macro_rules! mistakes {
    ($(#[$attribute:meta])* $visible:vis mistaken: { $($(#[$of_name:meta])* $name:ident,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mistake {
            $($(#[$of_name])* $name,)*
        }

        #[cfg(feature = "kit")]
        std::thread_local! {
            static MISTAKE: std::cell::Cell<Option<Mistake>> = const { std::cell::Cell::new(None) };
        }

        /// The mistake that is made in this thread, from now on.
        #[cfg(feature = "kit")]
        pub fn set_mistake(mistake: Option<Mistake>) {
            MISTAKE.set(mistake);
        }

        /// Whether to make this mistake.
        #[cfg(feature = "kit")]
        $visible fn mistaken(mistake: Mistake) -> bool {
            MISTAKE.get() == Some(mistake)
        }

        /// Whether to make this mistake: no.
        #[cfg(not(feature = "kit"))]
        #[inline(always)]
        $visible const fn mistaken(_: Mistake) -> bool {
            false
        }
    };
}

mistakes! {
    /// A wrong decision.
    pub(crate) mistaken: {
        /// Any neighbour is an alternate, also one whose shortest path leads back.
        AnyAlternate,
        /// A link that is cut while another one is changes no table.
        SecondCutIgnored,
        /// A switch takes an action table of an earlier version for a new one.
        OldActionsTaken,
        /// A value gets another meaning at once, while cells have it with the former one.
        MeaningAtOnce,
    }
}
