//! Frames in, frames out, over ports in memory. One binary: each would link the whole data plane.

extern crate fibula_dataplane as dataplane;

#[path = "../common/mod.rs"]
mod common;

mod acl;
mod aliens;
mod answers;
mod conservation;
mod dhcp;
mod flow_routes;
mod frame_path;
mod gateway;
mod groups;
mod hostile_controller;
mod moving;
mod names;
mod sources;
mod taps;
