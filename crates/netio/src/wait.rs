//! Sleeping until a frame arrives: poll(2) over the descriptors of a worker's devices, and a waker for other threads.

use crate::{Device, Readiness};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Most devices that a worker can wait for. The waker's descriptor takes one more place.
const MAX_DEVICES: usize = 255;

/// Puts one thread to sleep until a device has frames or a [`Waker`] is rung. A sleep costs one poll(2) and no
/// allocation beyond the list of descriptors, which is reused.
#[derive(Debug)]
pub struct Waiter {
    bell: Arc<OwnedFd>,
}

/// Wakes the thread that sleeps in the [`Waiter`] it came from. Cheap to clone, usable from any thread; a wake-up while
/// no thread sleeps makes the next sleep return at once.
#[derive(Debug, Clone)]
pub struct Waker {
    bell: Arc<OwnedFd>,
}

impl Waker {
    /// Wakes the sleeper.
    pub fn wake(&self) {
        // The only failure is a counter at its maximum: then a wake-up is pending anyway.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }
}

impl Waiter {
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { bell: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?) })
    }

    /// A handle that wakes this waiter.
    pub fn waker(&self) -> Waker {
        Waker { bell: self.bell.clone() }
    }

    /// Sleeps until one of `devices` may have frames, the waker rings, or `timeout` has passed (none: no limit).
    /// Devices for which `skip` returns true are not waited for. Returns false when it did not need to sleep because
    /// frames were waiting already.
    /// # Errors
    /// Those of poll(2), except an interruption by a signal, which counts as a wake-up.
    /// # Panics
    /// With more than 255 devices.
    pub fn sleep<D: AsMut<dyn Device>>(
        &self,
        devices: &mut [D],
        skip: impl Fn(usize) -> bool,
        timeout: Option<Duration>,
    ) -> io::Result<bool> {
        assert!(devices.len() <= MAX_DEVICES, "{} devices in one worker; at most {MAX_DEVICES}", devices.len());
        let mut faults = [false; MAX_DEVICES];
        let mut slept = true;
        {
            let mut owners = [0u8; MAX_DEVICES + 1];
            let mut descriptors = arrayvec::ArrayVec::<PollFd<'_>, { MAX_DEVICES + 1 }>::new();
            descriptors.push(PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN));
            for (i, device) in devices.iter_mut().enumerate() {
                if skip(i) {
                    continue;
                }
                match device.as_mut().readiness() {
                    // Every device is still queried, so that each is armed and later gets `woken`.
                    Readiness::Ready => slept = false,
                    Readiness::Descriptor(fd) => {
                        owners[descriptors.len()] = i as u8;
                        descriptors.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
                    }
                    Readiness::Exhausted => {}
                }
            }
            if slept {
                let timeout = timeout.map(|t| Timespec {
                    tv_sec: t.as_secs().try_into().unwrap_or(i64::MAX),
                    tv_nsec: t.subsec_nanos().into(),
                });
                match poll(&mut descriptors, timeout.as_ref()) {
                    Ok(_) => {
                        for (place, descriptor) in descriptors.iter().enumerate().skip(1) {
                            if descriptor.revents().intersects(PollFlags::ERR | PollFlags::NVAL | PollFlags::HUP) {
                                faults[usize::from(owners[place])] = true;
                            }
                        }
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(e) => return Err(e.into()),
                }
            }
        }
        // Non-blocking: an empty bell reads as EAGAIN.
        let _ = rustix::io::read(&*self.bell, &mut [0u8; 8]);
        for (i, device) in devices.iter_mut().enumerate() {
            if !skip(i) {
                device.as_mut().woken(faults[i]);
            }
        }
        Ok(slept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::loopback::{self, Loopback};
    use crate::{Burst, Packet, Pool};

    fn boxed(port: Loopback) -> Box<dyn Device> {
        Box::new(port)
    }

    #[test]
    fn a_waker_ends_a_sleep_without_a_limit() {
        let waiter = Waiter::new().unwrap();
        let waker = waiter.waker();
        let ringer = std::thread::spawn(move || waker.wake());
        let mut none: [Box<dyn Device>; 0] = [];
        assert!(waiter.sleep(&mut none, |_| false, None).unwrap());
        ringer.join().unwrap();
    }

    #[test]
    fn a_frame_ends_a_sleep_without_a_limit() {
        let (a, mut b) = loopback::pair("a", "b", &loopback::Settings::default()).unwrap();
        let waiter = Waiter::new().unwrap();
        let sender = std::thread::spawn(move || {
            let mut burst = Burst::from_iter([Packet::from_frame(&[1; 60])]);
            b.tx_burst(&mut Pool::new(0, 2048), &mut burst).unwrap();
            b
        });
        let mut devices = [boxed(a)];
        let (mut pool, mut burst) = (Pool::new(4, 2048), Burst::new());
        while devices[0].rx_burst(&mut pool, &mut burst).unwrap() == 0 {
            waiter.sleep(&mut devices, |_| false, None).unwrap();
        }
        assert_eq!(burst[0].frame(), &[1; 60]);
        sender.join().unwrap();
    }

    #[test]
    fn waiting_frames_prevent_the_sleep() {
        let (a, mut b) = loopback::pair("a", "b", &loopback::Settings::default()).unwrap();
        let mut burst = Burst::from_iter([Packet::from_frame(&[1; 60])]);
        b.tx_burst(&mut Pool::new(0, 2048), &mut burst).unwrap();
        let waiter = Waiter::new().unwrap();
        assert!(!waiter.sleep(&mut [boxed(a)], |_| false, None).unwrap());
    }
}
