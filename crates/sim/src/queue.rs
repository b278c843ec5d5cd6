//! One processor behind an unbounded queue, first come, first served.
//!
//! Nothing overtakes in this order, so no heap of events is needed: a packet begins when it has arrived and the one
//! before it is done (Lindley's recurrence). Exact, in integers; O(1) per packet. Differs from a switch: nothing is
//! dropped, and packets are not taken in bursts.

/// The processor and the packets before it. Times are in picoseconds from an origin of the caller's choice.
#[derive(Clone, Debug, Default)]
pub struct Processor {
    first_ps: Option<u64>,
    last_ps: u64,
    free_at_ps: u64,
    busy_ps: u64,
}

impl Processor {
    /// Adds a packet whose service takes `service_ps`. Returns its delay: the wait plus the service.
    /// # Panics
    /// If it arrives before the previous one.
    pub fn serve(&mut self, arrival_ps: u64, service_ps: u64) -> u64 {
        assert!(arrival_ps >= self.last_ps, "a packet at {arrival_ps} ps comes after one at {} ps", self.last_ps);
        self.first_ps.get_or_insert(arrival_ps);
        self.last_ps = arrival_ps;
        self.free_at_ps = arrival_ps.max(self.free_at_ps) + service_ps;
        self.busy_ps += service_ps;
        self.free_at_ps - arrival_ps
    }

    /// The same processor with its waiting packets, and with all counts at 0.
    #[must_use]
    pub fn with_counts_reset(&self) -> Self {
        Self { first_ps: None, busy_ps: 0, ..*self }
    }

    /// Work offered, in processors: the work that arrived, divided by the time in which it arrived. From 1 on the queue
    /// is unstable: waits grow without bound. 0 before there are two packets.
    pub fn offered(&self) -> f64 {
        ratio(self.busy_ps, self.first_ps.map_or(0, |first| self.last_ps - first))
    }

    /// The share of time in which the processor is busy, from the first arrival to the end of the last service.
    pub fn utilisation(&self) -> f64 {
        ratio(self.busy_ps, self.first_ps.map_or(0, |first| self.free_at_ps - first))
    }
}

fn ratio(part_ps: u64, whole_ps: u64) -> f64 {
    if whole_ps == 0 { 0.0 } else { part_ps as f64 / whole_ps as f64 }
}

#[cfg(test)]
mod tests {
    use lookup::testkit::seed;

    use super::*;
    use crate::random::Random;

    #[test]
    fn packets_wait_for_those_before_them() {
        let mut processor = Processor::default();
        let delays: Vec<u64> =
            [(10, 5), (11, 5), (12, 1), (30, 2), (32, 2)].map(|(at, service)| processor.serve(at, service)).into();
        // Done at 15, 20, 21, 32, 34.
        assert_eq!(delays, [5, 9, 9, 2, 2]);
        assert_eq!(processor.utilisation(), 15.0 / 24.0);
        assert_eq!(processor.offered(), 15.0 / 22.0);
    }

    #[test]
    #[should_panic(expected = "a packet at 9 ps comes after one at 10 ps")]
    fn packets_come_in_order() {
        let mut processor = Processor::default();
        processor.serve(10, 1);
        processor.serve(9, 1);
    }

    /// Mean service.
    const SERVICE_PS: f64 = 1e6;
    /// Loads with the longest waits relative to the random error of their mean: see [`relative_sigma`].
    const LOADS: [f64; 2] = [0.3, 0.5];
    const N: usize = 6_000_000;

    /// Standard deviation of the mean wait of `N` packets in M/M/1, divided by its mean, correlations included: the
    /// asymptotic variance is rho (2 + 5 rho - 4 rho^2 + rho^3) / (1 - rho)^4 in mean services squared (Daley, "The
    /// serial correlation coefficients of waiting times in a stationary single server queue", 1968). Less in M/D/1.
    fn relative_sigma(rho: f64) -> f64 {
        let variance = rho * (2.0 + 5.0 * rho - 4.0 * rho.powi(2) + rho.powi(3)) / (1.0 - rho).powi(4);
        (variance / N as f64).sqrt() / (rho / (1.0 - rho))
    }

    /// Delays of `N` packets with Poisson arrivals at load `rho`.
    fn delays(rho: f64, random: &mut Random, service: impl Fn(&mut Random) -> f64) -> (Vec<u64>, Processor) {
        let (mut processor, mut at) = (Processor::default(), 0.0);
        let delays = (0..N).map(|_| {
            at += random.exponential(SERVICE_PS / rho);
            processor.serve(at as u64, service(random) as u64)
        });
        (delays.collect(), processor)
    }

    fn mean_wait(delays: &[u64]) -> f64 {
        delays.iter().sum::<u64>() as f64 / delays.len() as f64 - SERVICE_PS
    }

    #[test]
    fn waits_with_exponential_service_are_those_of_theory() {
        let mut random = Random::new(seed());
        for rho in LOADS {
            assert!(6.0 * relative_sigma(rho) < 0.02, "2 % are many standard deviations");
            let (mut delays, processor) = delays(rho, &mut random, |random| random.exponential(SERVICE_PS));
            let expected = SERVICE_PS * rho / (1.0 - rho);
            let got = mean_wait(&delays);
            assert!((got / expected - 1.0).abs() < 0.02, "load {rho}: mean wait {got:.0} of {expected:.0} ps");
            assert!((processor.offered() / rho - 1.0).abs() < 0.01, "load {rho}: {}", processor.offered());
            // The delay is exponential, with mean service / (1 - rho).
            delays.sort_unstable();
            for share in [0.2, 0.35, 0.5, 0.75, 0.9, 0.99] {
                let expected = -SERVICE_PS / (1.0 - rho) * (1.0f64 - share).ln();
                let got = delays[(share * N as f64) as usize] as f64;
                assert!((got / expected - 1.0).abs() < 0.02, "load {rho}, {share}: {got:.0} of {expected:.0} ps");
            }
        }
    }

    #[test]
    fn waits_with_constant_service_are_those_of_theory() {
        let mut random = Random::new(seed());
        for rho in LOADS {
            let (delays, _) = delays(rho, &mut random, |_| SERVICE_PS);
            let expected = SERVICE_PS * rho / (2.0 * (1.0 - rho));
            let got = mean_wait(&delays);
            assert!((got / expected - 1.0).abs() < 0.02, "load {rho}: mean wait {got:.0} of {expected:.0} ps");
        }
    }
}
