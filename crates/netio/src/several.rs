//! One descriptor to sleep on for several devices: epoll(7), whose own descriptor is readable while one of them is.

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Devices at most: faults are a bit each.
const MAX_DEVICES: usize = 32;

/// The descriptors of devices that make one device. A sleep costs a comparison each, and a system call more for one that is new.
#[derive(Debug)]
pub struct Several {
    epoll: OwnedFd,
    /// The descriptor of each device, as it was added.
    known: [Option<RawFd>; MAX_DEVICES],
}

impl Several {
    /// Without any yet.
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, known: [None; MAX_DEVICES] })
    }

    /// Forgets all: a device is opened anew, and may have the number of another's descriptor. If there is no descriptor left, it goes on
    /// with what it has, which may wake the sleeper for nothing.
    pub fn forget(&mut self) {
        if let Ok(new) = Self::new() {
            *self = new;
        }
    }

    /// The descriptor of a device, as it [waits](crate::Readiness::Descriptor) for its next frame.
    /// # Errors
    /// Those of epoll_ctl(2), or there are too many devices.
    pub fn add(&mut self, index: usize, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let known = self.known.get_mut(index).ok_or(io::ErrorKind::InvalidInput)?;
        if *known != Some(descriptor.as_raw_fd()) {
            let data = EventData::new_u64(index as u64);
            match epoll::add(&self.epoll, descriptor, data, EventFlags::IN) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => *known = Some(descriptor.as_raw_fd()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// What to sleep on.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// The devices with an error at their descriptors, as a bit each.
    pub fn faults(&self) -> u32 {
        let mut events = Vec::<Event>::with_capacity(MAX_DEVICES);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&now)).is_err() {
            return 0;
        }
        let is_fault = |event: &&Event| {
            let flags = event.flags;
            flags.intersects(EventFlags::ERR | EventFlags::HUP)
        };
        events.iter().filter(is_fault).fold(0, |faults, event| {
            let data = event.data;
            faults | 1u32.checked_shl(data.u64() as u32).unwrap_or(0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn is_readable(several: &Several) -> bool {
        let mut descriptors = [PollFd::from_borrowed_fd(several.descriptor(), PollFlags::IN)];
        poll(&mut descriptors, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn a_sleeper_wakes_for_each_of_them_and_learns_which_one_failed() {
        let mut several = Several::new().unwrap();
        let [(one, to_one), (two, to_two)] = [(); 2].map(|()| rustix::pipe::pipe().unwrap());
        several.add(0, one.as_fd()).unwrap();
        several.add(5, two.as_fd()).unwrap();
        several.add(5, two.as_fd()).unwrap();
        assert!(!is_readable(&several));
        rustix::io::write(&to_two, &[1]).unwrap();
        assert!(is_readable(&several) && several.faults() == 0);
        rustix::io::read(&two, &mut [0; 8]).unwrap();
        assert!(!is_readable(&several));
        drop(to_one);
        assert!(is_readable(&several));
        assert_eq!(several.faults(), 1);
        several.forget();
        assert!(!is_readable(&several));
        drop(to_two);
        several.add(5, two.as_fd()).unwrap();
        assert_eq!(several.faults(), 1 << 5);
        assert!(several.add(32, two.as_fd()).is_err());
    }
}
