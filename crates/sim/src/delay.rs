//! Processing delay of a FIB: arrivals, through a queue, to a processor behind caches.
