//! Captures for operators: filters the copies of taps, and passes them on in batches.
//!
//! ```text
//!  Reader of each worker ─► thread "capture" ─► what each capture wants ─► queue of 32 batches ─► gRPC ─► operator
//! ```
//! The thread exists while there are captures. It polls, because ringing a bell for every chunk would cost a worker a
//! system call. Operators who do not keep up lose frames, and are told how many; nothing waits for them.
//! Limits: `MAX_CAPTURES` at once. Memory: 4 MiB per worker for all of them, and about 12 MiB per capture.

use api::audit::Audit;
use api::gate::Peer;
use api::v1;
use api::v1::captures_server::Captures as Service;
use dataplane::assembly::{Dataplane, LONGEST_FRAME};
use dataplane::bits::PortSet;
use dataplane::parse::NameField;
use dataplane::port::Role;
use dataplane::shim;
use dataplane::tap::{Direction, Ends, Reader, Record, Taps, Verdict, Wanted, records};
use fib::action::PortId;
use fib::name::{Name, NameKind};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::Bytes;
use tonic::{Request, Response, Status};

/// Captures at the same time.
const MAX_CAPTURES: usize = 4;
/// Bytes of frames in a batch, at least, unless no more come.
const BATCH_BYTES: usize = 128 << 10;
/// Batches that wait for an operator.
const QUEUE: usize = 32;
/// Interval between checks for copies from workers. See [`dataplane::tap::CHUNK_BYTES`].
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// If there is always more to read, losses are reported after this many chunks of each worker.
const PASS_ON_EVERY: u64 = 256;
/// When filtering by name, at least this many bytes of a frame are kept, whatever length the operator wants.
const NAME_BYTES: usize = 256;

/// Maximum interval between messages to the client.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// A port, as captures see it.
struct Port {
    id: PortId,
    device: String,
    role: Role,
    in_kernel: bool,
}

/// Answers requests of operators.
#[derive(Clone)]
pub(super) struct Control(Arc<Shared>);

struct Shared {
    switch: String,
    fixed_offset: Option<usize>,
    audit: Arc<Audit>,
    taps: Arc<Taps>,
    plane: Weak<Dataplane>,
    n_workers: usize,
    ports: Vec<Port>,
    running: Mutex<Running>,
}

/// Readers are there while there are captures.
#[derive(Default)]
struct Running {
    readers: Vec<Reader>,
    captures: Vec<Capture>,
}

impl Control {
    /// `in_kernel`: ports that the kernel forwards from or to by itself.
    pub(super) fn new(
        switch: String,
        fixed_offset: Option<usize>,
        plane: &Arc<Dataplane>,
        in_kernel: &[PortId],
        audit: Arc<Audit>,
    ) -> Self {
        let status = plane.status();
        let ports = status.ports.into_iter().map(|port| {
            let in_kernel = in_kernel.contains(&port.id);
            Port { id: port.id, device: port.device, role: port.role, in_kernel }
        });
        Self(Arc::new(Shared {
            switch,
            fixed_offset,
            audit,
            taps: plane.monitor().taps().clone(),
            plane: Arc::downgrade(plane),
            n_workers: status.workers.len(),
            ports: ports.collect(),
            running: Mutex::default(),
        }))
    }
}

impl Control {
    /// Begins a capture. The caller records it.
    pub(super) async fn begin(
        &self,
        request: v1::CaptureRequest,
    ) -> Result<mpsc::Receiver<Result<v1::CaptureBatch, Status>>, Status> {
        let shared = self.0.clone();
        let begun = tokio::task::spawn_blocking(move || shared.begin(&request)).await;
        begun.map_err(|error| Status::internal(error.to_string()))?
    }
}

#[tonic::async_trait]
impl Service for Control {
    type CaptureStream = ReceiverStream<Result<v1::CaptureBatch, Status>>;

    async fn capture(&self, request: Request<v1::CaptureRequest>) -> Result<Response<Self::CaptureStream>, Status> {
        let peer = Peer::of(&request)?;
        let request = request.into_inner();
        let detail = api::capture::describe(&request);
        let begun = self.begin(request).await;
        let end = begun.as_ref().map(|_| (0, 0)).map_err(|status| status.message());
        self.0.audit.change(&peer, "capture", &detail, end);
        begun.map(|batches| Response::new(ReceiverStream::new(batches)))
    }
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a capture, which ends when the returned value is dropped.
    fn begin(
        self: Arc<Self>,
        request: &v1::CaptureRequest,
    ) -> Result<mpsc::Receiver<Result<v1::CaptureBatch, Status>>, Status> {
        let indices = self.ports_of(&request.port)?;
        let field = self.taps.field();
        let name = Some(&request.name).filter(|name| !name.is_empty()).map(|text| name_of(text, field)).transpose()?;
        let most = (LONGEST_FRAME + shim::LEN) as u32;
        let snap_bytes = if request.snap_bytes == 0 { most } else { request.snap_bytes.min(most) } as usize;
        let start = v1::CaptureStart {
            switch: self.switch.clone(),
            name_kind: field.map(|field| field.kind().to_string()).unwrap_or_default(),
            fixed_offset: self.fixed_offset.map(|offset| offset as u32),
            ports: indices.iter().map(|&index| self.ports[usize::from(index)].to_wire()).collect(),
            snap_bytes: snap_bytes as u32,
        };
        let (to, batches) = mpsc::channel(QUEUE);
        let _ = to.try_send(Ok(v1::CaptureBatch { start: Some(start), ..v1::CaptureBatch::default() }));
        let mut running = self.running();
        running.captures.retain(|capture| !capture.to.is_closed());
        if running.captures.len() >= MAX_CAPTURES {
            return Err(Status::resource_exhausted(format!(
                "{MAX_CAPTURES} captures are running at this switch, which is the maximum; end one of them"
            )));
        }
        let mut ports = PortSet::default();
        indices.iter().for_each(|&index| ports.insert(index));
        let drops_only = request.drops_only;
        let at = indices.iter().map(|&index| (index, self.ports[usize::from(index)].id)).collect();
        let (batch, before, dropped, told) = (Batch::default(), vec![], BTreeMap::new(), BTreeMap::new());
        let capture = Capture {
            at,
            ports,
            drops_only,
            snap_bytes,
            name,
            to,
            batch,
            before,
            dropped,
            told,
            sent_at: Instant::now(),
        };
        running.captures.push(capture);
        if running.readers.is_empty() {
            running.readers = self.taps.open(self.n_workers, running.wanted());
            let shared = self.clone();
            let thread = std::thread::Builder::new().name("capture".to_owned());
            if let Err(error) = thread.spawn(move || shared.run()) {
                *running = Running::default();
                self.taps.close();
                return Err(Status::resource_exhausted(format!("no thread for the capture: {error}; try again later")));
            }
        } else {
            self.taps.set(running.wanted());
        }
        let Running { readers, captures } = &mut *running;
        if let Some(capture) = captures.last_mut() {
            capture.before = readers.iter().map(|reader| capture.lost_at(reader)).collect();
        }
        Ok(batches)
    }

    /// The indices of the ports with this number or device; all ports if the text is empty.
    fn ports_of(&self, text: &str) -> Result<Vec<u8>, Status> {
        let all = (0..).zip(&self.ports);
        let is_meant = |port: &Port| match text.parse() {
            _ if text.is_empty() => true,
            Ok(id) => port.id == PortId(id),
            Err(_) => port.device == text,
        };
        let found: Vec<u8> = all.filter(|(_, port)| is_meant(port)).map(|(index, _)| index).collect();
        if found.is_empty() {
            let known: Vec<String> = self.ports.iter().map(|port| format!("{} ({})", port.id, port.device)).collect();
            let known =
                if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
            let why = match text {
                "" => format!("switch {} has no ports: captures contain frames of ports", self.switch),
                text => format!("switch {} has no port `{text}`; {known}", self.switch),
            };
            return Err(Status::not_found(why));
        }
        Ok(found)
    }

    /// Passes records on until no capture is left, or the switch ends.
    fn run(&self) {
        for round in 0u64.. {
            let mut has_read = false;
            {
                let mut running = self.running();
                let before = running.captures.len();
                running.captures.retain(|capture| !capture.to.is_closed());
                if running.captures.is_empty() || self.plane.strong_count() == 0 {
                    self.taps.close();
                    *running = Running::default();
                    if let Some(plane) = self.plane.upgrade() {
                        plane.wake();
                    }
                    return;
                }
                if running.captures.len() != before {
                    self.taps.set(running.wanted());
                }
                let (Running { readers, captures }, field) = (&mut *running, self.taps.field());
                for reader in readers.iter() {
                    has_read |= reader.read(|chunk| {
                        for record in records(chunk) {
                            captures.iter_mut().for_each(|capture| capture.take(&record, field));
                        }
                    });
                }
                if !has_read || round % PASS_ON_EVERY == 0 {
                    captures.iter_mut().for_each(|capture| capture.pass_on(readers));
                }
            }
            if has_read {
                // Another thread may be waiting to begin a capture.
                std::thread::yield_now();
            } else {
                std::thread::park_timeout(LOOK_EVERY);
            }
        }
    }
}

/// A name of the network, or a MAC address.
fn name_of(text: &str, field: Option<NameField>) -> Result<Name, Status> {
    let kind = field.map_or(NameKind::Mac, NameField::kind);
    Name::parse(kind, text).or_else(|error| Name::parse(NameKind::Mac, text).map_err(|_| error)).map_err(|error| {
        if field.is_some() {
            return Status::invalid_argument(error.to_string());
        }
        let why =
            "the switch has no table yet, so it knows no names but MAC addresses; give one, or wait for the controller";
        Status::failed_precondition(format!("`{text}` is not a MAC address, and {why}"))
    })
}

impl Port {
    fn to_wire(&self) -> v1::CapturePort {
        let role = match self.role {
            Role::Host => "host",
            Role::Trunk => "trunk",
            Role::Outside => "outside",
        };
        let (device, in_kernel) = (self.device.clone(), self.in_kernel);
        v1::CapturePort { port: self.id.0.into(), device, role: role.to_owned(), in_kernel }
    }
}

impl Running {
    fn wanted(&self) -> Wanted {
        let mut wanted = Wanted::default();
        for capture in &self.captures {
            let least = if capture.name.is_some() { NAME_BYTES } else { 1 };
            for &(index, _) in &capture.at {
                wanted.add(index, capture.drops_only, capture.snap_bytes.max(least));
            }
        }
        wanted
    }
}

/// One capture.
struct Capture {
    /// Its ports: their indices and numbers.
    at: Vec<(u8, PortId)>,
    ports: PortSet,
    drops_only: bool,
    snap_bytes: usize,
    name: Option<Name>,
    to: mpsc::Sender<Result<v1::CaptureBatch, Status>>,
    batch: Batch,
    /// What each worker had lost at its ports before it began.
    before: Vec<Vec<u64>>,
    /// Frames in batches that found the queue full, by port.
    dropped: BTreeMap<u32, u64>,
    /// Losses that were reported to the operator.
    told: BTreeMap<u32, u64>,
    /// When something was sent last.
    sent_at: Instant,
}

/// Frames on their way to an operator, with their bytes stored consecutively beside them.
#[derive(Default)]
struct Batch {
    frames: Vec<(v1::CapturedFrame, usize)>,
    bytes: Vec<u8>,
}

impl Capture {
    fn take(&mut self, record: &Record<'_>, field: Option<NameField>) {
        let is_drop = matches!(record.verdict, Verdict::Dropped(_));
        if !self.ports.contains(record.index) || self.drops_only && !is_drop || !self.is_named(record, field) {
            return;
        }
        let kept = record.bytes.len().min(self.snap_bytes);
        self.batch.bytes.extend_from_slice(&record.bytes[..kept]);
        self.batch.frames.push((to_wire(record), kept));
        // For truncated frames, the metadata dominates.
        let n_bytes = self.batch.bytes.len() + self.batch.frames.len() * size_of::<(v1::CapturedFrame, usize)>();
        if n_bytes >= BATCH_BYTES {
            self.send(vec![]);
        }
    }

    fn is_named(&self, record: &Record<'_>, field: Option<NameField>) -> bool {
        let Some(name) = &self.name else { return true };
        let field = field.filter(|field| field.kind() == name.kind());
        let Ends { source, destination } = Ends::of(record.bytes, field);
        source.as_ref() == Some(name) || destination.as_ref() == Some(name)
    }

    /// What a worker has lost at each port.
    fn lost_at(&self, reader: &Reader) -> Vec<u64> {
        self.at.iter().map(|&(index, _)| reader.lost(index, self.drops_only)).collect()
    }

    /// Sends pending frames, and losses if they have grown.
    fn pass_on(&mut self, readers: &[Reader]) {
        let mut lost = self.dropped.clone();
        for (reader, before) in readers.iter().zip(&self.before) {
            for ((&(_, port), now), before) in self.at.iter().zip(self.lost_at(reader)).zip(before) {
                if now > *before {
                    *lost.entry(port.0.into()).or_default() += now - before;
                }
            }
        }
        let has_news = lost != self.told;
        // With nothing to send, an occasional empty batch: otherwise the loss of the client's machine would not be
        // noticed.
        if self.batch.frames.is_empty() && !has_news && self.sent_at.elapsed() < SIGN_OF_LIFE {
            return;
        }
        let wire = lost.iter().map(|(&port, &frames)| v1::PortLoss { port, frames }).collect();
        if self.send(wire) {
            self.told = lost;
        }
    }

    /// Whether the queue had room. Otherwise the frames are lost.
    fn send(&mut self, lost: Vec<v1::PortLoss>) -> bool {
        self.sent_at = Instant::now();
        let Batch { frames, bytes } = std::mem::take(&mut self.batch);
        let (bytes, mut at) = (Bytes::from(bytes), 0);
        let frames = frames.into_iter().map(|(mut frame, len)| {
            frame.data = bytes.slice(at..at + len);
            at += len;
            frame
        });
        let batch = v1::CaptureBatch { start: None, frames: frames.collect(), lost };
        match self.to.try_send(Ok(batch)) {
            Ok(()) => true,
            Err(error) => {
                let refused = error.into_inner().map(|batch| batch.frames).unwrap_or_default();
                for frame in refused {
                    *self.dropped.entry(frame.port).or_default() += 1;
                }
                false
            }
        }
    }
}

fn to_wire(record: &Record<'_>) -> v1::CapturedFrame {
    let (verdict, exit, reason) = match record.verdict {
        Verdict::Forwarded(exit) => (v1::FrameVerdict::Forwarded, exit.0, ""),
        Verdict::Sent => (v1::FrameVerdict::Sent, 0, ""),
        Verdict::Answered => (v1::FrameVerdict::Answered, 0, ""),
        Verdict::Heard => (v1::FrameVerdict::Heard, 0, ""),
        Verdict::Copied => (v1::FrameVerdict::Copied, 0, ""),
        Verdict::Dropped(reason) => (v1::FrameVerdict::Dropped, 0, reason.name()),
    };
    v1::CapturedFrame {
        time_ns: record.time_ns,
        port: record.port.0.into(),
        outbound: record.direction == Direction::Out,
        verdict: verdict.into(),
        exit: exit.into(),
        reason: reason.to_owned(),
        original_bytes: record.original_len,
        data: Bytes::new(),
    }
}
