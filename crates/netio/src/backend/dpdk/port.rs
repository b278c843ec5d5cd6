//! A port of DPDK, and the kernel's interface behind it if there is one.

use super::spec::Spec;
use super::sys::{self, Refusal, Request};
use super::{ETHERNET_HEADER, Options, VLAN_TAG};
use crate::NetError;
use crate::backend::found::Found;
use crate::backend::interface::{self, net_error};
use rustix::net::netdevice::name_to_index;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// An open port, which the workers share.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) queues: Arc<sys::Port>,
    interface: Option<Interface>,
    pub(super) max_frame: usize,
}

/// The interface that `net_af_packet` and `net_af_xdp` use. DPDK says of it neither that it is gone nor its MTU, and would
/// leave it in promiscuous mode after a kill.
#[derive(Debug)]
struct Interface {
    name: String,
    index: u32,
    beside: interface::Promiscuous,
    /// Turned on again when it is closed.
    _found: Option<Found>,
}

impl Interface {
    fn open(name: &str, options: &Options) -> Result<(Self, usize), NetError> {
        let fail = |action| move |e| net_error(name, action, e);
        let beside = interface::Promiscuous::new(name, options.promiscuous)?;
        let fd = beside.as_fd();
        let index = name_to_index(fd, name).map_err(|e| fail("find the interface")(e.into()))?;
        interface::check_up(fd, name)?;
        let found = match options.disable_offloads {
            true => Some(Found::turn_off(fd, name, options.keep.as_deref())?),
            false => None,
        };
        let mtu = interface::mtu(fd, name).map_err(fail("read the MTU"))?;
        Ok((Self { name: name.to_owned(), index, beside, _found: found }, mtu))
    }

    /// Whether it is the one that was opened, and up.
    fn check(&self) -> Result<(), NetError> {
        let fd = self.beside.as_fd();
        let index = name_to_index(fd, &self.name).map_err(|e| net_error(&self.name, "find it", e.into()))?;
        if index != self.index {
            // Another of the same name.
            return Err(net_error(&self.name, "use", io::Error::from_raw_os_error(libc::ENODEV)));
        }
        interface::check_up(fd, &self.name)
    }
}

impl Port {
    pub(super) fn open(spec: &Spec, options: &Options, n_workers: usize) -> Result<Self, NetError> {
        let bad = |reason| NetError::BadOption { device: spec.name().to_owned(), reason };
        let interface = spec.interface().map(|name| Interface::open(name, options)).transpose()?;
        let (interface, mtu_of_interface) = interface.unzip();
        let wanted = mtu_of_interface.unwrap_or(usize::from(options.mtu) + usize::from(options.room));
        let longest = wanted + ETHERNET_HEADER + VLAN_TAG;
        if let Some(most) = spec.longest_frame().filter(|&most| most < longest) {
            return Err(bad(format!(
                "its framesz holds frames of {most} bytes, and they have {longest}; raise framesz"
            )));
        }
        let buffer_bytes = spec.buffer_bytes(longest);
        if buffer_bytes < longest {
            return Err(bad(format!("frames of {longest} bytes are too long for DPDK's buffers; lower the MTU")));
        }
        // A driver over an interface takes the MTU that the interface has, and says that it has another.
        let asked = |mtu| if mtu_of_interface.is_some() { 0 } else { mtu };
        let device = spec.for_workers(n_workers, longest);
        let request = Request {
            device: &device,
            name: spec.name(),
            n_queues: n_workers as u16,
            least_mtu: asked(options.mtu),
            mtu: asked(wanted as u16),
            buffer_bytes: buffer_bytes as u32,
            n_kept: spec.n_kept(),
            promiscuous: options.promiscuous && interface.is_none(),
        };
        let port = sys::Port::open(&request).map_err(|refusal| refused(spec, options, n_workers, &device, refusal))?;
        if spec.has_exact_queues() && usize::from(port.max_queues()) != n_workers {
            return Err(bad(wrong_queues(port.max_queues(), n_workers)));
        }
        let mtu = mtu_of_interface.unwrap_or(usize::from(port.mtu()));
        Ok(Self { queues: Arc::new(port), interface, max_frame: mtu + ETHERNET_HEADER })
    }

    /// Whether frames can come and go.
    pub(super) fn check(&self, spec: &Spec) -> Result<(), NetError> {
        match &self.interface {
            Some(interface) => interface.check(),
            None if self.queues.has_link() => Ok(()),
            None => {
                let source = io::Error::other("it has no link: its cable or its peer is missing");
                Err(NetError::Down { device: spec.name().to_owned(), source })
            }
        }
    }

    /// Whether checking that it is up costs nothing in addition to the driver's work for a burst.
    pub(super) fn is_cheap_to_check(&self) -> bool {
        self.interface.is_some()
    }

    /// Whether the opened interface is gone, so that the port must be opened again.
    pub(super) fn is_lost(&self) -> bool {
        self.interface.as_ref().is_some_and(|interface| {
            name_to_index(interface.beside.as_fd(), &interface.name).is_ok_and(|index| index != interface.index)
        })
    }
}

fn wrong_queues(has: u16, n_workers: usize) -> String {
    format!(
        "it has {has} queues for {n_workers} workers; give it {n_workers} in its arguments if it has one for that, or set workers = {has}"
    )
}

/// The driver's number of a group of sockets is the process's, exclusive-or the interface's.
fn fanout(why: &str) -> String {
    format!(
        "DPDK's driver for packet sockets has the number of another process's group on another interface ({why}); start this \
         process again, or write net_af_xdp0,iface=… or driver = \"af_packet\""
    )
}

fn refused(spec: &Spec, options: &Options, n_workers: usize, device: &str, refusal: Refusal) -> NetError {
    let Refusal { step, source, max_queues, max_mtu, said } = refusal;
    // Drivers return -1 for anything, which is not EPERM.
    let why = if said.is_empty() { source.to_string() } else { said };
    if step == sys::STARTED {
        // All that was asked for can be had: its peer is not there.
        return NetError::Down { device: spec.name().to_owned(), source: io::Error::other(why) };
    }
    let reason = if max_queues > 0 && usize::from(max_queues) < n_workers {
        wrong_queues(max_queues, n_workers)
    } else if max_mtu > 0 && max_mtu < options.mtu && spec.interface().is_none() {
        format!("its largest MTU is {max_mtu}, and [dpdk] has mtu = {}; lower that", options.mtu)
    } else {
        if why.contains("PACKET_FANOUT") {
            return NetError::BadOption { device: spec.name().to_owned(), reason: fanout(&why) };
        }
        format!(
            "DPDK was given {device:?}, which cannot {step} ({why}); write a virtual device such as \
             net_af_packet0,iface=eth7, or the address of one that dpdk-devbind.py has bound to vfio-pci"
        )
    };
    NetError::BadOption { device: spec.name().to_owned(), reason }
}
