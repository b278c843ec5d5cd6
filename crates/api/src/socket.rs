//! Sockets of either kind: TCP, and Unix sockets whose files only their owners may use unless the address says
//! otherwise.
//!
//! A Unix socket's file has only its owner's permissions when it is created; others are added afterwards. A file that a
//! killed process left behind is replaced, but a live listener keeps its file. The kernel's lock on a second file,
//! `FILE.lock`, distinguishes the two, so that daemons that start together do not mistake each other's files for
//! leftovers. The lock file stays.

use crate::address::{Address, Origin};
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixSocket, UnixStream};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// A listener of either kind.
#[derive(Debug)]
pub(crate) enum Bound {
    Tcp(TcpListener),
    Unix(UnixBound),
}

/// A listening Unix socket. Its file is removed before its lock is released.
#[derive(Debug)]
pub(crate) struct UnixBound {
    listener: UnixListener,
    address: Address,
    path: PathBuf,
    n_accepted: u64,
    _lock: File,
}

impl Bound {
    pub(crate) async fn bind(address: &Address) -> io::Result<Self> {
        Ok(match address {
            Address::Tcp(address) => Bound::Tcp(TcpListener::bind(address).await?),
            Address::Unix { path, mode } => {
                let lock = lock(path)?;
                let listener = bind_unix(path, *mode)?;
                let (address, path) = (address.clone(), path.clone());
                Bound::Unix(UnixBound { listener, address, path, n_accepted: 0, _lock: lock })
            }
        })
    }

    pub(crate) fn local_addr(&self) -> io::Result<Address> {
        Ok(match self {
            Bound::Tcp(listener) => Address::Tcp(listener.local_addr()?),
            Bound::Unix(bound) => bound.address.clone(),
        })
    }

    pub(crate) fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Socket, Origin)>> {
        Poll::Ready(Ok(match self {
            Bound::Tcp(listener) => {
                let (stream, address) = ready!(listener.poll_accept(cx))?;
                // A request is answered before the next is read, so small writes must not wait for each other.
                let _ = stream.set_nodelay(true);
                (Socket::Tcp(stream), Origin::Tcp(address))
            }
            Bound::Unix(bound) => {
                let (stream, _) = ready!(bound.listener.poll_accept(cx))?;
                bound.n_accepted += 1;
                let origin = origin_of(&stream, bound.n_accepted)?;
                (Socket::Unix(stream), origin)
            }
        }))
    }
}

impl Drop for UnixBound {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Identifies the other end.
fn origin_of(stream: &UnixStream, number: u64) -> io::Result<Origin> {
    let credentials = stream.peer_cred()?;
    Ok(Origin::Unix { uid: credentials.uid(), pid: credentials.pid(), number })
}

/// Connects to a Unix socket.
pub(crate) async fn connect_unix(path: &Path) -> io::Result<(Socket, Origin)> {
    let stream = UnixStream::connect(path).await.map_err(|error| {
        let advice = match error.kind() {
            ErrorKind::PermissionDenied => "its file admits only its owner; run this command as that user, or as root",
            ErrorKind::ConnectionRefused => "the process that listened there has ended",
            _ => return error,
        };
        io::Error::new(error.kind(), format!("{error}; {advice}"))
    })?;
    let origin = origin_of(&stream, 0)?;
    Ok((Socket::Unix(stream), origin))
}

fn in_use() -> io::Error {
    io::Error::new(ErrorKind::AddrInUse, "another process listens there")
}

/// Takes the listener's lock for a path.
fn lock(path: &Path) -> io::Result<File> {
    let mut of_lock = path.as_os_str().to_owned();
    of_lock.push(".lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&of_lock);
    let file = file.map_err(|error| {
        io::Error::new(error.kind(), format!("{} cannot be opened: {error}", Path::new(&of_lock).display()))
    })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(in_use()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Listens at a path whose lock this process holds.
fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "a file that is not a socket is there"));
        }
        // A process that takes no lock may still listen there.
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => return Err(in_use()),
        },
    }
    let socket = UnixSocket::new_stream()?;
    // The permissions of the socket become those of its file, less the umask.
    File::from(socket.as_fd().try_clone_to_owned()?).set_permissions(Permissions::from_mode(mode & 0o600))?;
    socket.bind(path)?;
    let listener = socket.listen(BACKLOG)?;
    if mode & !0o600 != 0 {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    Ok(listener)
}

/// A connection of either kind.
#[derive(Debug)]
pub enum Socket {
    /// By TCP.
    Tcp(TcpStream),
    /// By a Unix socket.
    Unix(UnixStream),
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Socket::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Socket::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Socket::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &Path, mode: u32) -> Address {
        Address::Unix { path: path.to_owned(), mode }
    }

    async fn refused(address: &Address) -> String {
        Bound::bind(address).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn socket_is_its_owners_unless_others_are_let_in() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("north.sock");
        for mode in [0o600, 0o660, 0o666, 0o200] {
            let bound = Bound::bind(&at(&path, mode)).await.unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
            drop(bound);
            assert!(!path.exists());
        }
    }

    #[tokio::test]
    async fn file_of_a_dead_process_alone_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("north.sock");
        let address = at(&path, 0o600);
        let bound = Bound::bind(&address).await.unwrap();
        assert!(refused(&address).await.contains("another process listens there"));
        UnixStream::connect(&path).await.expect("the one that lives is still reached");
        drop(bound);

        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "what a killed process leaves");
        let bound = Bound::bind(&address).await.unwrap();
        UnixStream::connect(&path).await.unwrap();
        drop(bound);

        let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(refused(&address).await.contains("another process listens there"), "it takes no lock");
        drop(other);
        fs::remove_file(&path).unwrap();

        fs::write(&path, "text").unwrap();
        assert!(refused(&address).await.contains("not a socket"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        assert!(
            refused(&at(Path::new("/nowhere/north.sock"), 0o600))
                .await
                .contains("/nowhere/north.sock.lock cannot be opened")
        );
    }

    #[test]
    fn of_daemons_that_start_together_over_a_dead_ones_file_one_listens() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("north.sock");
        for _ in 0..50 {
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            let start = std::sync::Barrier::new(4);
            let bind = || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
                start.wait();
                let bound = runtime.block_on(Bound::bind(&at(&path, 0o600)));
                let is_reached = bound.is_ok() && runtime.block_on(UnixStream::connect(&path)).is_ok();
                // All have tried before any ends.
                start.wait();
                is_reached
            };
            let n_listening: usize = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(bind)).collect();
                threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum()
            });
            assert_eq!(n_listening, 1);
            assert!(!path.exists());
        }
    }
}
