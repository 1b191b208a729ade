//! The arena: a model's weights as named views into few buffers.

use std::collections::HashMap;
use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;

use crate::file::SourceFile;
use crate::page::round_up_to_page;
use crate::residency::Resident;
use crate::windows::cover;
use crate::{Device, Error, GpuByteView, GpuBytes, ModelFile, Result};

/// The weights of a model: one buffer per file (a few windows where the device limits a buffer's size), and named,
/// checked regions in them. Building one reads nothing and copies nothing.
#[derive(Debug)]
pub struct Arena {
    /// Keeps the windows in memory; dropped before them.
    resident: Option<Resident>,
    windows: Vec<GpuBytes>,
    regions: Vec<Region>,
    by_name: HashMap<String, RegionId>,
    sources: Vec<Arc<SourceFile>>,
}

/// A region as the reader of a file format finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionSpec {
    /// Unique name, such as a tensor's.
    pub name: String,
    /// Which of the arena's files it is in, counted from 0.
    pub file_no: usize,
    /// First byte in that file.
    pub offset: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Bytes that are never torn when the region is [looked at](crate::OnBytes), counted from its start; the last may be
    /// fewer. `None`: nobody looks at it.
    pub unit_bytes: Option<NonZero<usize>>,
}

/// A handle on a region: its number in the order in which regions were given. Valid for its arena only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(u32);

impl RegionId {
    /// Its place in [`Arena::regions`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A region that lies wholly inside its file and inside one window.
#[derive(Debug)]
pub struct Region {
    id: RegionId,
    spec: RegionSpec,
    window_no: usize,
    offset_in_window: usize,
    size_bytes: usize,
}

impl Arena {
    /// Indexes `regions` of the mapped `files`. The views are the files' own pages: no byte is read or copied.
    ///
    /// # Errors
    ///
    /// When a region names no file of `files`, passes its file's end, has the name of another, or is larger than a buffer
    /// of the device: each with the region's name and the numbers.
    pub fn new(device: &Device, files: Vec<ModelFile>, regions: impl IntoIterator<Item = RegionSpec>) -> Result<Self> {
        let layout = Layout::new(device, &files, regions)?;
        let windows = layout.map(device, &files)?;
        Ok(layout.into_arena(windows, files.into_iter().map(|file| file.mapping().source().clone()).collect()))
    }

    /// The bytes of a region.
    ///
    /// # Panics
    ///
    /// When `id` is another arena's and this one has no such region.
    pub fn view(&self, id: RegionId) -> GpuByteView<'_> {
        let region = &self.regions[id.index()];
        self.windows[region.window_no]
            .view(region.offset_in_window, region.size_bytes)
            .expect("the window was chosen to hold the region whole")
    }

    /// The region of that name, if there is one.
    pub fn region(&self, name: &str) -> Option<&Region> {
        self.by_name.get(name).map(|id| &self.regions[id.index()])
    }

    /// All regions, in the order in which they were given.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The buffers that hold the regions: what a device binds.
    pub fn windows(&self) -> &[GpuBytes] {
        &self.windows
    }

    /// Holds on to what keeps the windows in memory.
    pub(crate) fn keep(&mut self, resident: Resident) {
        self.resident = Some(resident);
    }

    /// Checks that no file of which pages are mapped changed since it was opened, as [`ModelFile::check_unchanged`]. Cheap
    /// enough to ask after every answer: a file cut inside its last page, or written in place, raises no bus error and would go
    /// unnoticed. What was read into memory of the process is none of the file's any more.
    ///
    /// # Errors
    ///
    /// [`Error::FileChanged`] for the first that did.
    pub fn check_unchanged(&self) -> Result<()> {
        if self.windows.iter().any(|window| window.mapped().is_some()) { self.check_files() } else { Ok(()) }
    }

    /// The same of all files, mapped or not.
    pub(crate) fn check_files(&self) -> Result<()> {
        self.sources.iter().try_for_each(|source| source.check_unchanged())
    }
}

/// Where everything goes, before a byte is mapped or read.
pub(crate) struct Layout {
    windows: Vec<Window>,
    regions: Vec<Region>,
    by_name: HashMap<String, RegionId>,
}

/// The part `bytes` of a file, to become one buffer. It begins on a page.
pub(crate) struct Window {
    pub(crate) file_no: usize,
    pub(crate) bytes: Range<usize>,
    /// What lies in it, by where it begins.
    spans: Vec<Span>,
}

/// A region in its window.
pub(crate) struct Span {
    /// Index in the layout's regions.
    pub(crate) index: usize,
    /// In the window.
    pub(crate) bytes: Range<usize>,
    /// Where the last ends of those that do not begin after it.
    reach: usize,
}

impl Window {
    /// Bytes in whole pages.
    pub(crate) fn device_size_bytes(&self) -> usize {
        round_up_to_page(self.bytes.len()).expect("the mapping of the file has as many")
    }

    /// The regions that have bytes in a part of the window.
    pub(crate) fn spans_in(&self, part: Range<usize>) -> impl Iterator<Item = &Span> {
        let first = self.spans.partition_point(|span| span.reach <= part.start);
        let spans = self.spans[first..].iter().take_while(move |span| span.bytes.start < part.end);
        spans.filter(move |span| span.bytes.end > part.start)
    }

    fn add(&mut self, index: usize, bytes: Range<usize>) {
        let reach = self.spans.last().map_or(0, |last| last.reach).max(bytes.end);
        self.spans.push(Span { index, bytes, reach });
    }
}

impl Layout {
    pub(crate) fn new(
        device: &Device,
        files: &[ModelFile],
        specs: impl IntoIterator<Item = RegionSpec>,
    ) -> Result<Self> {
        let mut regions = Vec::new();
        let mut by_name = HashMap::new();
        // (file number, bytes in the file, index in `regions`)
        let mut spans = Vec::new();
        for spec in specs {
            let bytes = span_in_file(&spec, files)?;
            let index = regions.len();
            let too_many =
                Error::TooLarge { what: "region index", len: index as u64, element_bytes: size_of::<Region>() };
            let id = RegionId(u32::try_from(index).map_err(|_| too_many)?);
            if by_name.insert(spec.name.clone(), id).is_some() {
                return Err(Error::DuplicateRegion { name: spec.name });
            }
            spans.push((spec.file_no, bytes.clone(), index));
            regions.push(Region { id, spec, window_no: 0, offset_in_window: 0, size_bytes: bytes.len() });
        }
        spans.sort_by_key(|(file_no, bytes, _)| (*file_no, bytes.start));

        let mut windows = Vec::new();
        for in_file in spans.chunk_by(|(a, ..), (b, ..)| a == b) {
            place(device, in_file, &mut regions, &mut windows)?;
        }
        Ok(Self { windows, regions, by_name })
    }

    pub(crate) fn windows(&self) -> &[Window] {
        &self.windows
    }

    pub(crate) fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Bytes of all windows.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.windows.iter().map(|window| window.bytes.len() as u64).sum()
    }

    /// Makes every window a part of its file's mapping.
    pub(crate) fn map(&self, device: &Device, files: &[ModelFile]) -> Result<Vec<GpuBytes>> {
        let map = |window: &Window| GpuBytes::map(device, files[window.file_no].mapping(), window.bytes.clone());
        self.windows.iter().map(map).collect()
    }

    /// Joins the layout with its windows, one for each in [`windows`](Self::windows).
    pub(crate) fn into_arena(self, windows: Vec<GpuBytes>, sources: Vec<Arc<SourceFile>>) -> Arena {
        Arena { resident: None, windows, regions: self.regions, by_name: self.by_name, sources }
    }
}

/// The bytes of a region in its file, checked against the file's length.
fn span_in_file(spec: &RegionSpec, files: &[ModelFile]) -> Result<Range<usize>> {
    let Some(file) = files.get(spec.file_no) else {
        let RegionSpec { name, file_no, .. } = spec.clone();
        return Err(Error::UnknownFile { name, file_no, n_files: files.len() });
    };
    let end = spec.offset.checked_add(spec.size_bytes).filter(|&end| end <= file.size_bytes() as u64);
    let Some(end) = end else {
        return Err(Error::RegionOutOfBounds {
            path: file.path().into(),
            name: spec.name.clone(),
            offset: spec.offset,
            size_bytes: spec.size_bytes,
            file_bytes: file.size_bytes() as u64,
        });
    };
    // Both fit: they are at most the file's length, which is a `usize`.
    Ok(spec.offset as usize..end as usize)
}

/// Chooses the windows of one file and places its regions in them.
fn place(
    device: &Device,
    spans: &[(usize, Range<usize>, usize)],
    regions: &mut [Region],
    windows: &mut Vec<Window>,
) -> Result<()> {
    let max_buffer_bytes = device.capabilities().max_buffer_bytes.unwrap_or(u64::MAX);
    let max_bytes = usize::try_from(max_buffer_bytes).unwrap_or(usize::MAX);
    let ranges: Vec<_> = spans.iter().map(|(_, bytes, _)| bytes.clone()).collect();
    let (chosen, window_of) = cover(&ranges, max_bytes).map_err(|span_no| {
        let Region { spec, size_bytes, .. } = &regions[spans[span_no].2];
        Error::BufferTooLarge { name: spec.name.clone(), size_bytes: *size_bytes as u64, max_buffer_bytes }
    })?;
    let n_before = windows.len();
    windows.extend(chosen.into_iter().map(|bytes| Window { file_no: spans[0].0, bytes, spans: Vec::new() }));
    for ((_, bytes, index), window_no) in spans.iter().zip(window_of) {
        let (region, window_no) = (&mut regions[*index], n_before + window_no);
        let window = &mut windows[window_no];
        region.window_no = window_no;
        region.offset_in_window = bytes.start - window.bytes.start;
        window.add(*index, region.offset_in_window..region.offset_in_window + region.size_bytes);
    }
    Ok(())
}

impl Region {
    /// The handle to view it by.
    pub fn id(&self) -> RegionId {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Which file it is in, counted from 0.
    pub fn file_no(&self) -> usize {
        self.spec.file_no
    }

    /// Which of [`Arena::windows`] it is in.
    pub(crate) fn window_no(&self) -> usize {
        self.window_no
    }

    /// Bytes that belong together, from its start on.
    pub(crate) fn unit_bytes(&self) -> Option<NonZero<usize>> {
        self.spec.unit_bytes
    }

    /// Its first byte in the file.
    pub fn file_offset(&self) -> u64 {
        self.spec.offset
    }

    /// Its bytes.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }
}
