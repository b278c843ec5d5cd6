//! Connections to a controller or a switch: its address, our certificate, and exit codes of refusals.

use api::client::ConnectError;
use api::identity::Kind;
use api::tls::{Files, Tls};
use api::v1;
use api::v1::northbound_client::NorthboundClient;
use command::output::{Exit, Failure, OrExit};
use command::program::GLOBAL;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

/// The certificate to present to servers with TLS.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Credentials {
    /// Directory with our certificate, made by `fibula pki issue` [default: ~/.config/fibula/tls, if it exists]
    #[arg(long, env = "FIBULA_TLS", global = true, value_name = "DIR", help_heading = GLOBAL)]
    tls: Option<PathBuf>,
    /// Our certificate, instead of cert.pem in that directory
    #[arg(long, env = "FIBULA_CERT", global = true, value_name = "FILE", help_heading = GLOBAL)]
    cert: Option<PathBuf>,
    /// Its private key, instead of key.pem in that directory
    #[arg(long, env = "FIBULA_KEY", global = true, value_name = "FILE", help_heading = GLOBAL)]
    key: Option<PathBuf>,
    /// Certificates of trusted authorities, instead of ca.pem in that directory
    #[arg(long, env = "FIBULA_CA", global = true, value_name = "FILE", help_heading = GLOBAL)]
    ca: Option<PathBuf>,
}

/// `~/.config/fibula`, or according to XDG_CONFIG_HOME.
pub(crate) fn config_directory() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(|home| home.join(".config")));
    config.unwrap_or_else(|| "/etc".into()).join("fibula")
}

impl Credentials {
    /// Reads the certificate; none if it does not exist and was not asked for.
    fn load(&self) -> anyhow::Result<Option<Arc<Tls>>> {
        let Credentials { tls, cert, key, ca } = self;
        let default = config_directory().join("tls");
        let dir = tls.clone().or_else(|| default.join("cert.pem").exists().then_some(default));
        if dir.is_none() && cert.is_none() && key.is_none() && ca.is_none() {
            return Ok(None);
        }
        let files = Files { dir, cert: cert.clone(), key: key.clone(), ca: ca.clone(), crl: None };
        let tls = Tls::load(&files);
        tls.map(Some).or_exit(Exit::Usage, "the certificate of --tls, --cert, --key and --ca is not usable")
    }

    /// Connects to a server at an address or a URL. For an address, TLS is used if there is a certificate.
    /// # Errors
    /// [`Exit::Usage`] for an unusable certificate, and connection errors.
    pub(crate) async fn connect(&self, kind: Kind, at: &str) -> anyhow::Result<Result<Channel, ConnectError>> {
        let tls = self.load()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let is_address = at.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let url = if is_address && !at.contains('/') { format!("{scheme}://{at}") } else { at.to_owned() };
        Ok(api::client::connect_to(kind, &url, tls.as_ref(), CONNECT_TIMEOUT).await)
    }
}

/// Runs a future to completion on a new runtime of this thread.
/// # Errors
/// Those of the future.
pub(crate) fn block_on<'f, T>(future: impl Future<Output = anyhow::Result<T>> + 'f) -> anyhow::Result<T> {
    // A runtime has three loops, and instantiates each for each type of future: here there is one type a result.
    let future: Pin<Box<dyn Future<Output = anyhow::Result<T>> + 'f>> = Box::pin(future);
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

/// The address of the controller.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Remote {
    /// URL of the controller, or unix:PATH of its socket; separate several controllers with commas [default:
    /// https://127.0.0.1:4600 with a certificate, http://127.0.0.1:4600 without]
    #[arg(long, env = "FIBULA_CONTROLLER", global = true, value_name = "URL", help_heading = GLOBAL)]
    controller: Option<String>,
    #[command(flatten)]
    credentials: Credentials,
}

/// A connected client.
pub(crate) type Client = NorthboundClient<Channel>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Remote {
    /// Connects, and runs `work` to completion on a new runtime.
    /// # Errors
    /// Those of `work`; [`Exit::NotFound`] if no daemon answers.
    pub(crate) fn run<T, F: Future<Output = anyhow::Result<T>>>(
        &self,
        work: impl FnOnce(Client) -> F,
    ) -> anyhow::Result<T> {
        block_on(async { work(api::client::northbound(self.channel().await?)).await })
    }

    /// Connects to the controller, or to the leader of several.
    /// # Errors
    /// [`Exit::NotFound`] if no daemon answers.
    pub(crate) async fn channel(&self) -> anyhow::Result<Channel> {
        let at = self.controller.as_deref().unwrap_or(api::DEFAULT_CONTROLLER);
        let is_one = !at.contains(',');
        let (mut failed, mut follower) = (None, None);
        for at in at.split(',') {
            match self.credentials.connect(Kind::Controller, at.trim()).await? {
                Ok(channel) => {
                    // One of several controllers leads. A caller that may not ask which one is told so by any of them.
                    if is_one || !follows(&mut api::client::northbound(channel.clone())).await {
                        return Ok(channel);
                    }
                    follower = Some(channel);
                }
                Err(error) => failed = Some(error),
            }
        }
        if let Some(channel) = follower {
            return Ok(channel);
        }
        let (exit, error) = failed.map_or((Exit::Usage, String::new()), |e| (exit_of(&e), said(&e)));
        Err(Failure::new(exit, error))
    }

    /// The certificate to present.
    pub(crate) fn credentials(&self) -> &Credentials {
        &self.credentials
    }
}

impl Remote {
    /// Connects to another controller of the same store with the same certificate.
    /// # Errors
    /// [`Exit::Usage`] for an unusable certificate.
    pub(crate) async fn connect_to(&self, at: &str) -> anyhow::Result<Result<Client, ConnectError>> {
        Ok(self.credentials.connect(Kind::Controller, at).await?.map(api::client::northbound))
    }

    /// Returns `self` if it names a single controller.
    /// # Errors
    /// [`Exit::Usage`] if it names several.
    pub(crate) fn one(&self, why_one: &'static str) -> anyhow::Result<&Remote> {
        let is_list = self.controller.as_deref().is_some_and(|at| at.contains(','));
        if is_list { Err(Failure::new(Exit::Usage, why_one)) } else { Ok(self) }
    }

    /// Runs `work` for each controller of the list, whether connected or not.
    /// # Errors
    /// Those of `work`.
    pub(crate) fn run_each<T, F: Future<Output = anyhow::Result<T>>>(
        &self,
        work: impl Fn(String, Result<Client, ConnectError>) -> F,
    ) -> anyhow::Result<Vec<T>> {
        block_on(async {
            let mut done = Vec::new();
            for at in self.controller.as_deref().unwrap_or(api::DEFAULT_CONTROLLER).split(',') {
                let connected = self.credentials.connect(Kind::Controller, at.trim()).await?;
                done.push(work(at.trim().to_owned(), connected.map(api::client::northbound)).await?);
            }
            Ok(done)
        })
    }
}

/// Whether a controller says that it follows another one.
async fn follows(client: &mut Client) -> bool {
    let status = client.get_status(api::v1::GetStatusRequest {}).await;
    status.is_ok_and(|status| !status.into_inner().leader.is_empty())
}

/// Why there is no connection, and how to fix it.
fn said(error: &ConnectError) -> String {
    match error {
        // This is, or may be, the right controller.
        ConnectError::NotTrusted { .. } => {
            format!(
                "{error}\nSet other certificates with --tls DIR or --ca FILE, or another controller with --controller URL."
            )
        }
        _ => format!("{error}\nSet another one with --controller URL or FIBULA_CONTROLLER."),
    }
}

/// The exit code of a failed connection.
pub(crate) fn exit_of(error: &ConnectError) -> Exit {
    match error {
        ConnectError::Unreachable { .. } | ConnectError::NotTrusted { .. } => Exit::NotFound,
        _ => Exit::Usage,
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
        // The connection broke: the server rejects our certificate, or is not such a server.
        _ if std::error::Error::source(status).is_some() => Exit::NotFound,
        Code::PermissionDenied | Code::Unauthenticated => Exit::Refused,
        Code::InvalidArgument | Code::OutOfRange | Code::DataLoss => Exit::BadInput,
        Code::NotFound | Code::Unavailable | Code::DeadlineExceeded => Exit::NotFound,
        Code::AlreadyExists | Code::FailedPrecondition | Code::ResourceExhausted | Code::Aborted => Exit::Refused,
        _ => Exit::Internal,
    };
    Failure::new(exit, api::client::reason(status))
}

/// A port written as `switch:port`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PortOf {
    pub(crate) switch: String,
    pub(crate) port: u16,
}

impl std::str::FromStr for PortOf {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a port of a switch; write it like s1:3 (ports are 0 to 65535)");
        let (switch, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        if switch.is_empty() { Err(wrong()) } else { Ok(Self { switch: switch.to_owned(), port }) }
    }
}

impl std::fmt::Display for PortOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.switch, self.port)
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
