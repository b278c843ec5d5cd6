//! Deliberate defects, for the models only. Each must make a model fail; otherwise the model shows nothing.

use std::cell::Cell;

/// What can be broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// An entry is published Relaxed: a reader may see the entry before the version it refers to.
    EntryPublishedRelaxed,
    /// An entry is loaded Relaxed.
    EntryLoadedRelaxed,
    /// The writer's epoch is advanced Relaxed: a reader may announce it without seeing what was unpublished.
    EpochAdvancedRelaxed,
    /// A reader loads the epoch Relaxed.
    EpochLoadedRelaxed,
    /// A reader announces the epoch Relaxed: its earlier reads may still be under way.
    AnnouncedRelaxed,
    /// A reader goes offline Relaxed.
    OfflineRelaxed,
    /// The writer reads the announcements Relaxed.
    ScannedRelaxed,
    /// A reader comes online without announcing it.
    OnlineUnannounced,
    /// A reader comes online without the fence between its announcement and its first read.
    OnlineUnfenced,
    /// A reader with a burst in flight loads the epoch of the next one Relaxed.
    EpochOfBurstRelaxed,
    /// A reader that finishes a burst announces the newest epoch, not that of the oldest burst in flight.
    NewestAnnounced,
    /// The writer scans without the fence between its last store and the scan.
    ScanUnfenced,
    /// A reader of the sequence counter begins Relaxed.
    ReadBegunRelaxed,
    /// A reader of the sequence counter ignores that a count is odd.
    OddIgnored,
    /// A reader of the sequence counter validates without the fence.
    ValidatedUnfenced,
    /// A writer begins without the fence between the odd count and its stores.
    WriteUnfenced,
    /// A writer commits Relaxed.
    CommittedRelaxed,
    /// A reader of the journal begins Relaxed.
    JournalBegunRelaxed,
    /// A reader of the journal validates without the fence.
    JournalValidatedUnfenced,
    /// A writer begins without the fence between earlier commits and its odd count.
    BegunUnfenced,
    /// A writer overwrites a place Relaxed: it may be seen before the commits that freed it.
    PlaceStoredRelaxed,
    /// A reader loads places Relaxed.
    PlaceLoadedRelaxed,
    /// A reader ignores that a place may be that of a later write.
    OverwritingIgnored,
    /// Memory is announced as reused Relaxed: a reader may begin at the later count without seeing what was unpublished.
    ReuseStoredRelaxed,
    /// Reused memory is written without the fence after its announcement.
    ReuseUnfenced,
    /// An outside reader loads the count of reuses Relaxed.
    ReuseBegunRelaxed,
    /// A write is noted without the fence after the write before it.
    NoteUnfenced,
    /// An outside reader at an odd count does not read the note.
    NoteIgnored,
}

impl Mutant {
    /// The defects of entries and domains.
    pub const VERSIONS: [Mutant; 10] = [
        Mutant::EntryPublishedRelaxed,
        Mutant::EntryLoadedRelaxed,
        Mutant::EpochAdvancedRelaxed,
        Mutant::EpochLoadedRelaxed,
        Mutant::AnnouncedRelaxed,
        Mutant::OfflineRelaxed,
        Mutant::ScannedRelaxed,
        Mutant::OnlineUnannounced,
        Mutant::OnlineUnfenced,
        Mutant::ScanUnfenced,
    ];
    /// The defects of bursts in flight, in addition to those of the domain.
    pub const IN_FLIGHT: [Mutant; 5] = [
        Mutant::EpochOfBurstRelaxed,
        Mutant::NewestAnnounced,
        Mutant::AnnouncedRelaxed,
        Mutant::OnlineUnannounced,
        Mutant::OnlineUnfenced,
    ];
    /// The defects of the sequence counter.
    pub const SEQUENCE: [Mutant; 5] = [
        Mutant::ReadBegunRelaxed,
        Mutant::OddIgnored,
        Mutant::ValidatedUnfenced,
        Mutant::WriteUnfenced,
        Mutant::CommittedRelaxed,
    ];

    /// The defects of the journal, in addition to those of the counter in its writer.
    pub const JOURNAL: [Mutant; 9] = [
        Mutant::OddIgnored,
        Mutant::WriteUnfenced,
        Mutant::CommittedRelaxed,
        Mutant::JournalBegunRelaxed,
        Mutant::JournalValidatedUnfenced,
        Mutant::BegunUnfenced,
        Mutant::PlaceStoredRelaxed,
        Mutant::PlaceLoadedRelaxed,
        Mutant::OverwritingIgnored,
    ];

    /// The defects of what outside readers rely on for memory that is reused.
    pub const REUSE: [Mutant; 6] = [
        Mutant::EntryPublishedRelaxed,
        Mutant::EntryLoadedRelaxed,
        Mutant::ReuseStoredRelaxed,
        Mutant::ReuseUnfenced,
        Mutant::ReuseBegunRelaxed,
        Mutant::JournalValidatedUnfenced,
    ];

    /// The defects of what outside readers rely on for writes in place.
    pub const UNDO: [Mutant; 7] = [
        Mutant::BegunUnfenced,
        Mutant::JournalBegunRelaxed,
        Mutant::JournalValidatedUnfenced,
        Mutant::WriteUnfenced,
        Mutant::CommittedRelaxed,
        Mutant::NoteUnfenced,
        Mutant::NoteIgnored,
    ];

    /// Whether this thread's models run with this defect.
    pub fn is_active(self) -> bool {
        ACTIVE.get() == Some(self)
    }
}

thread_local! {
    // loom runs all threads of a model on the thread that called it, so tests do not see each other's defects.
    static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Runs `model` with `mutant` in place.
pub fn with<R>(mutant: Option<Mutant>, model: impl FnOnce() -> R) -> R {
    ACTIVE.set(mutant);
    let result = model();
    ACTIVE.set(None);
    result
}
