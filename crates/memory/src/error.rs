//! What can go wrong, with the names and the numbers.

use std::io;
use std::path::PathBuf;

use crate::{FileIdentity, Refusal};

/// Every failure of the substrate. Messages name the thing, what was found and what was expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A number of elements or bytes that no address space holds.
    #[error("{what}: {len} elements of {element_bytes} bytes exceed the address space")]
    TooLarge {
        /// What was to be allocated.
        what: &'static str,
        /// Elements asked for.
        len: u64,
        /// Bytes of one element.
        element_bytes: usize,
    },
    /// The operating system refused an allocation.
    #[error("out of memory: could not allocate {size_bytes} bytes: {source}")]
    OutOfMemory {
        /// Bytes asked for, rounded to whole pages.
        size_bytes: usize,
        /// The operating system's reason.
        source: io::Error,
    },
    /// An allocation would pass the budget that the device was opened with.
    #[error(
        "over budget: {size_bytes} bytes more would pass the device's budget of {budget_bytes} bytes, \
         of which {allocated_bytes} are in use"
    )]
    OverBudget {
        /// Bytes asked for, rounded to whole pages.
        size_bytes: u64,
        /// Bytes in use.
        allocated_bytes: u64,
        /// The device's budget.
        budget_bytes: u64,
    },
    /// One buffer larger than the device takes.
    #[error("{name} has {size_bytes} bytes, more than the {max_buffer_bytes} that one buffer of this device holds")]
    BufferTooLarge {
        /// What the buffer was for.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// The device's limit.
        max_buffer_bytes: u64,
    },
    /// A view past the logical end of its buffer.
    #[error("view of {len} bytes at offset {offset} passes the end of a buffer of {size_bytes} bytes")]
    ViewOutOfBounds {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Logical bytes of the buffer.
        size_bytes: usize,
    },
    /// A window of a mapping that does not begin on a page.
    #[error("a window of a mapping begins at {offset}, which is not a multiple of the page size {page_size}")]
    WindowNotPageAligned {
        /// Where it begins.
        offset: u64,
        /// The operating system's page size.
        page_size: usize,
    },
    /// A file that could not be opened, mapped or read.
    #[error("{}: could not {action}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A file without a byte in it.
    #[error("{}: the file is empty", path.display())]
    EmptyFile {
        /// The file.
        path: PathBuf,
    },
    /// A path that is no regular file.
    #[error("{}: not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A file that somebody holds locked for writing.
    #[error("{}: another process holds an exclusive lock on the file: it is being written", path.display())]
    FileLocked {
        /// The file.
        path: PathBuf,
    },
    /// A file that is no longer the one that was loaded.
    #[error("{}: the file changed while it was in use: it was {was} and is {now}", path.display())]
    FileChanged {
        /// The file.
        path: PathBuf,
        /// At load.
        was: FileIdentity,
        /// Now.
        now: FileIdentity,
    },
    /// A load that was told to stop.
    #[error("loading was cancelled after {done_bytes} of {total_bytes} bytes")]
    Cancelled {
        /// Bytes that were in memory.
        done_bytes: u64,
        /// Bytes that would have been.
        total_bytes: u64,
    },
    /// A plan that takes more memory than there is.
    #[error("does not fit into memory: {0}")]
    DoesNotFit(Box<Refusal>),
    /// No GPU, or none as asked for.
    #[error("no GPU{}; found: {}", called(asked.as_deref()), list(found))]
    NoGpu {
        /// Part of the name that was asked for.
        asked: Option<String>,
        /// Names of the GPUs that there are.
        found: Vec<String>,
    },
    /// A GPU's driver that failed.
    #[error("{device}: could not {action}: {reason}")]
    Gpu {
        /// The device.
        device: String,
        /// What was tried.
        action: &'static str,
        /// The driver's reason.
        reason: String,
    },
    /// A device that does not see the weights that the host sees.
    #[error(
        "{device} reads other weights than the host: the checksum of `{region}` is {:08x}{:08x} there and {:08x}{:08x} here;          the device can't be used",
        on_device[0], on_device[1], on_host[0], on_host[1]
    )]
    SelfTest {
        /// The device.
        device: String,
        /// The region read.
        region: String,
        /// Its checksum as the device computed it.
        on_device: [u32; 2],
        /// Its checksum as the host did.
        on_host: [u32; 2],
    },
    /// Memory that no GPU sees.
    #[error("the memory is the host's: no GPU can bind it")]
    NotOnDevice,
    /// A row of a weight that is too large to be bound.
    #[error("a row of {row_bytes} bytes is more than the {max_binding_bytes} that the device binds at once")]
    RowTooLarge {
        /// Bytes of the row.
        row_bytes: usize,
        /// The device's limit.
        max_binding_bytes: u64,
    },
    /// Something was done otherwise than asked, and that was not to be.
    #[error("asked for {asked}, but {engaged}")]
    NotAsAsked {
        /// What was asked for.
        asked: String,
        /// What was done, and why.
        engaged: String,
    },
    /// A handler for bus errors that the operating system refused.
    #[error("could not install the handler for bus errors: {source}")]
    SignalHandler {
        /// The operating system's reason.
        source: io::Error,
    },
    /// A region that is not wholly inside its file.
    #[error(
        "{}: region `{name}` of {size_bytes} bytes at offset {offset} passes the end of a file of {file_bytes} bytes",
        path.display()
    )]
    RegionOutOfBounds {
        /// The file.
        path: PathBuf,
        /// The region.
        name: String,
        /// Its first byte in the file.
        offset: u64,
        /// Its bytes.
        size_bytes: u64,
        /// Bytes of the file.
        file_bytes: u64,
    },
    /// Two regions of one name.
    #[error("region `{name}` is listed twice")]
    DuplicateRegion {
        /// The name.
        name: String,
    },
    /// A region in a file that was not given.
    #[error("region `{name}` is in file number {file_no}, but there are {n_files} files (counted from 0)")]
    UnknownFile {
        /// The region.
        name: String,
        /// The file that it names.
        file_no: usize,
        /// Files given.
        n_files: usize,
    },
    /// A KV geometry with a zero in it.
    #[error("a KV plane of {n_head_kv} heads of {head_dim} elements with {rows} rows holds nothing")]
    EmptyKvGeometry {
        /// KV heads.
        n_head_kv: usize,
        /// Elements of a head.
        head_dim: usize,
        /// Rows asked for.
        rows: usize,
    },
    /// Two KV planes of different head shape.
    #[error("KV rows of {found_n_head_kv} x {found_head_dim} do not fit a plane of {n_head_kv} x {head_dim}")]
    KvShape {
        /// KV heads of the rows.
        found_n_head_kv: usize,
        /// Elements of a head in the rows.
        found_head_dim: usize,
        /// KV heads of the plane.
        n_head_kv: usize,
        /// Elements of a head in the plane.
        head_dim: usize,
    },
    /// K and V rows of a length that is not the same whole number of rows.
    #[error("K of {k_len} and V of {v_len} elements are not the same whole number of rows of {row_len} elements")]
    KvRows {
        /// Elements of K.
        k_len: usize,
        /// Elements of V.
        v_len: usize,
        /// Elements of one row.
        row_len: usize,
    },
    /// Rows that do not follow the last position held.
    #[error("KV rows at position {pos} do not follow: the next position of the plane is {end}")]
    KvGap {
        /// Position of the first row given.
        pos: usize,
        /// Position that was expected.
        end: usize,
    },
    /// Positions that a plane does not hold.
    #[error("positions {from}..{to} are not all held: the plane holds {origin}..{end}")]
    KvNotHeld {
        /// First position asked for.
        from: usize,
        /// One past the last.
        to: usize,
        /// First position held.
        origin: usize,
        /// One past the last position held.
        end: usize,
    },
    /// More rows than a plane can hold at once.
    #[error("{n_rows} rows do not fit a plane of {capacity} rows")]
    KvOverCapacity {
        /// Rows to hold.
        n_rows: usize,
        /// Rows of the plane.
        capacity: usize,
    },
    /// A step that wants an empty plane.
    #[error("the plane holds positions {origin}..{end}; this step wants it empty")]
    KvNotEmpty {
        /// First position held.
        origin: usize,
        /// One past the last position held.
        end: usize,
    },
    /// A tile of a detached generation that is not the next one.
    #[error("tile at layer {layer}, position {pos} is out of order: the next one {}", next_tile(*cursor))]
    KvOutOfOrder {
        /// Layer of the tile.
        layer: usize,
        /// First position of the tile.
        pos: usize,
        /// Layer and position expected; `None` when nothing is missing.
        cursor: Option<(usize, usize)>,
    },
    /// A tile of a detached generation with more rows than are missing in its layer.
    #[error("tile of {n_rows} rows at layer {layer}, position {pos} passes the layer's end, position {end}")]
    KvPastSpan {
        /// Layer of the tile.
        layer: usize,
        /// First position of the tile.
        pos: usize,
        /// Rows of the tile.
        n_rows: usize,
        /// One past the layer's last position.
        end: usize,
    },
    /// A detached generation in which something is missing.
    #[error("the KV generation is incomplete: positions {pos}..{end} of layer {layer} are missing")]
    KvIncomplete {
        /// The first layer in which positions are missing.
        layer: usize,
        /// The first that is missing there.
        pos: usize,
        /// One past the layer's last position.
        end: usize,
    },
}

fn called(name: Option<&str>) -> String {
    name.map(|name| format!(" with {name:?} in its name")).unwrap_or_default()
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

fn next_tile(cursor: Option<(usize, usize)>) -> String {
    match cursor {
        Some((layer, pos)) => format!("begins at layer {layer}, position {pos}"),
        None => "does not exist, all is installed".into(),
    }
}
