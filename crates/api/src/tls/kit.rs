//! The first bytes of a connection without a connection, for fuzzing. The product is built without.

use super::Tls;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConnection, ServerConnection};

impl Tls {
    /// What a listener makes of these first bytes from a stranger: whether the handshake is complete, and what is answered.
    /// # Errors
    /// As the listener refuses them.
    pub fn first_bytes(&self, mut bytes: &[u8], web: bool) -> io::Result<(bool, Vec<u8>)> {
        let loaded = self.current();
        let config = Arc::clone(if web { &loaded.web } else { &loaded.grpc });
        let mut server = ServerConnection::new(config).map_err(io::Error::other)?;
        let mut answer = Vec::new();
        while !bytes.is_empty() {
            server.read_tls(&mut bytes)?;
            let read = server.process_new_packets();
            while server.wants_write() {
                server.write_tls(&mut answer)?;
            }
            read.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        }
        Ok((!server.is_handshaking(), answer))
    }

    /// The first bytes that we send as a client.
    /// # Errors
    /// None, with certificates that can be used.
    pub fn hello(&self) -> io::Result<Vec<u8>> {
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let mut client = ClientConnection::new(Arc::clone(&self.current().client), name).map_err(io::Error::other)?;
        let mut hello = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut hello)?;
        }
        Ok(hello)
    }
}

/// The first certificate of a PEM file, in DER.
/// # Errors
/// Why there is none.
pub fn certificate_of(pem: &[u8]) -> Result<Vec<u8>, String> {
    CertificateDer::from_pem_slice(pem).map(|der| der.to_vec()).map_err(|error| error.to_string())
}
