//! Talking to a controller: its address, and the exit codes of its refusals.

use api::client::ConnectError;
use api::v1;
use api::v1::northbound_client::NorthboundClient;
use command::output::{Exit, Failure, OrExit};
use std::future::Future;
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

/// Where the controller is.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Remote {
    /// URL of the controller
    #[arg(long, env = "FIBULA_CONTROLLER", default_value = api::DEFAULT_CONTROLLER, global = true, value_name = "URL")]
    controller: String,
}

/// A connected client.
pub(crate) type Client = NorthboundClient<Channel>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Remote {
    /// Connects, and runs `work` to completion on a new runtime.
    /// # Errors
    /// Those of `work`; [`Exit::NotFound`] if nobody answers.
    pub(crate) fn run<T, F: Future<Output = anyhow::Result<T>>>(
        &self,
        work: impl FnOnce(Client) -> F,
    ) -> anyhow::Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let channel = api::client::connect(&self.controller, CONNECT_TIMEOUT).await.map_err(|error| {
                let exit = if matches!(error, ConnectError::BadUrl { .. }) { Exit::Usage } else { Exit::NotFound };
                Failure::new(exit, format!("{error}\nSet another one with --controller URL or FIBULA_CONTROLLER."))
            })?;
            work(api::client::northbound(channel)).await
        })
    }
}

/// The controller's answer, or its refusal with the exit code for its kind.
pub(crate) fn answer<T>(result: Result<Response<T>, Status>) -> anyhow::Result<T> {
    match result {
        Ok(response) => Ok(response.into_inner()),
        Err(status) => Err(refusal(&status)),
    }
}

/// A refusal with the exit code for its kind.
pub(crate) fn refusal(status: &Status) -> anyhow::Error {
    let exit = match status.code() {
        Code::InvalidArgument | Code::OutOfRange => Exit::BadInput,
        Code::NotFound | Code::Unavailable | Code::DeadlineExceeded => Exit::NotFound,
        Code::AlreadyExists | Code::FailedPrecondition | Code::ResourceExhausted | Code::Aborted => Exit::Refused,
        _ => Exit::Internal,
    };
    Failure::new(exit, status.message())
}

/// A port written as `switch:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortOf {
    pub(crate) switch: String,
    pub(crate) port: u16,
}

impl std::str::FromStr for PortOf {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no port of a switch; write it like s1:3 (ports are 0 to 65535)");
        let (switch, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        if switch.is_empty() { Err(wrong()) } else { Ok(Self { switch: switch.to_owned(), port }) }
    }
}

impl From<PortOf> for v1::LinkEnd {
    fn from(PortOf { switch, port }: PortOf) -> Self {
        v1::LinkEnd { switch, port: port.into() }
    }
}

/// Reads and checks a configuration file of a daemon.
pub(crate) fn config<T, E: std::error::Error + Send + Sync + 'static>(result: Result<T, E>) -> anyhow::Result<T> {
    result.or_exit(Exit::Usage, "the configuration is not usable")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_switch_and_number() {
        assert_eq!("s1:3".parse(), Ok(PortOf { switch: "s1".to_owned(), port: 3 }));
        for wrong in ["s1", ":3", "s1:", "s1:65536", "s1:x", ""] {
            assert!(wrong.parse::<PortOf>().unwrap_err().contains("s1:3"), "{wrong}");
        }
    }
}
