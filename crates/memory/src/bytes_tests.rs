//! Owners and views: exact lengths, one checked door, zeros and poison.

use half::f16;

use crate::file_tests::file_of;
use crate::{Device, Error, GpuBuffer, GpuBytes, GpuHalfBuffer, ModelFile, POISON_BITS, page_size};

#[test]
fn m2_lengths_are_exact_and_only_the_device_sees_whole_pages() {
    let device = Device::host();
    let (floats, halves) = (GpuBuffer::zeros(&device, 3).unwrap(), GpuHalfBuffer::zeros(&device, 3).unwrap());
    assert_eq!((floats.len(), floats.size_bytes(), floats.device_size_bytes()), (3, 12, page_size()));
    assert_eq!((halves.len(), halves.size_bytes(), halves.device_size_bytes()), (3, 6, page_size()));
    let bytes = GpuBytes::from_slice(&device, &[7; 10]).unwrap();
    assert_eq!((bytes.len(), bytes.device_size_bytes(), bytes.is_mapped()), (10, page_size(), false));
}

#[test]
fn m2_a_buffer_of_no_elements_is_empty_and_usable() {
    let device = Device::host();
    assert!(GpuBuffer::zeros(&device, 0).unwrap().as_slice().is_empty());
    assert!(GpuHalfBuffer::uninitialized(&device, 0).unwrap().is_empty());
    assert!(GpuBytes::from_slice(&device, &[]).unwrap().view(0, 0).unwrap().is_empty());
}

#[test]
fn buffers_begin_on_a_page() {
    let mut buffer = GpuBuffer::zeros(&Device::host(), 5).unwrap();
    assert!(buffer.as_slice().as_ptr().addr().is_multiple_of(page_size()));
    assert_eq!(buffer.as_mut_slice().as_ptr(), buffer.as_slice().as_ptr());
}

#[test]
fn m7_zeros_are_zeros_and_writable() {
    let device = Device::host();
    let mut floats = GpuBuffer::zeros(&device, 5000).unwrap();
    assert!(floats.as_slice().iter().all(|x| x.to_bits() == 0));
    floats.as_mut_slice()[4999] = 1.5;
    assert_eq!(floats.as_slice()[4999].to_bits(), 1.5_f32.to_bits());

    let mut halves = GpuHalfBuffer::zeros(&device, 5000).unwrap();
    assert!(halves.as_bits().iter().all(|&bits| bits == 0));
    halves.as_bits_mut()[4999] = f16::ONE.to_bits();
    assert_eq!(halves.as_f16()[4999], f16::ONE);
}

#[test]
fn m8_the_poison_is_no_number_and_neither_is_what_is_computed_from_it() {
    let poison = f16::from_bits(POISON_BITS);
    assert!(poison.is_nan());
    assert!((poison.to_f32() * 0.0 + 1.0).is_nan());
    assert_eq!(f16::from_bits(0xDEAD).to_f32().to_bits(), (-427.25_f32).to_bits(), "why the usual one is not used");
}

#[test]
fn m10_an_uninitialised_buffer_shows_poison_until_written() {
    let mut buffer = GpuHalfBuffer::uninitialized(&Device::host(), 100).unwrap();
    assert!(buffer.as_bits().iter().all(|&bits| bits == POISON_BITS));
    buffer.as_bits_mut()[..50].fill(0x3C00);
    assert!(buffer.as_f16()[..50].iter().all(|&x| x == f16::ONE));
    assert!(buffer.as_f16()[50..].iter().all(|x| x.is_nan()));
}

#[test]
fn an_allocation_that_the_system_refuses_is_an_error() {
    // 2^48 bytes: more than the address space of a process on any of today's machines.
    let refused = GpuBuffer::zeros(&Device::host(), 1 << 46).unwrap_err();
    assert!(matches!(refused, Error::OutOfMemory { size_bytes, .. } if size_bytes == 1 << 48), "{refused}");
}

#[test]
fn a_length_without_a_representation_is_refused() {
    for len in [usize::MAX, usize::MAX / 4, isize::MAX as usize / 4 + 1] {
        assert!(matches!(GpuBuffer::zeros(&Device::host(), len), Err(Error::TooLarge { element_bytes: 4, .. })));
    }
}

#[test]
fn m3_a_view_ends_at_the_logical_end() {
    let bytes = GpuBytes::from_slice(&Device::host(), b"0123456789").unwrap();
    assert_eq!(bytes.view(0, 10).unwrap().as_slice(), b"0123456789");
    assert_eq!(bytes.view(9, 1).unwrap().as_slice(), b"9");
    assert_eq!(bytes.view(10, 0).unwrap().as_slice(), b"");
    for (offset, len) in [(0, 11), (10, 1), (11, 0), (5, usize::MAX), (usize::MAX, 1), (usize::MAX, usize::MAX)] {
        let refused = bytes.view(offset, len).unwrap_err().to_string();
        assert_eq!(refused, format!("view of {len} bytes at offset {offset} passes the end of a buffer of 10 bytes"));
    }
}

#[test]
fn m3_a_view_says_which_buffer_and_where_in_it() {
    let bytes = GpuBytes::from_slice(&Device::host(), b"0123456789").unwrap();
    let view = bytes.view(3, 4).unwrap();
    assert!(std::ptr::eq(view.buffer(), &raw const bytes));
    assert_eq!((view.offset(), view.len()), (3, 4));
    #[cfg(target_pointer_width = "64")]
    assert_eq!(size_of_val(&view), 24);
}

#[test]
fn m14_a_mapped_window_is_the_files_own_bytes() {
    let page = page_size();
    let content: Vec<u8> = (0..2 * page + 10).map(|i| (i % 251) as u8).collect();
    let (_folder, path) = file_of(&content);
    let file = ModelFile::open(&path).unwrap();
    let bytes = GpuBytes::map(&Device::host(), file.mapping(), page..2 * page + 10).unwrap();
    assert!(bytes.is_mapped());
    assert_eq!((bytes.len(), bytes.device_size_bytes()), (page + 10, 2 * page));
    let view = bytes.view(0, page + 10).unwrap().as_slice();
    assert_eq!(view.as_ptr(), file.bytes()[page..].as_ptr(), "the same memory, no copy");
    assert_eq!(view, &content[page..]);
}

#[test]
fn m14_a_window_past_the_file_or_beside_a_page_is_refused() {
    let page = page_size();
    let (_folder, path) = file_of(&vec![1; 2 * page + 10]);
    let file = ModelFile::open(&path).unwrap();
    let map = |window| GpuBytes::map(&Device::host(), file.mapping(), window);
    assert!(matches!(map(0..2 * page + 11), Err(Error::ViewOutOfBounds { .. })), "the tail page is not the file's");
    assert!(matches!(map(page..0), Err(Error::ViewOutOfBounds { .. })), "an end before the start");
    assert!(matches!(map(10..page), Err(Error::WindowNotPageAligned { offset: 10, .. })));
}

#[test]
fn m4_views_stay_valid_for_as_long_as_their_owner() {
    let (_folder, path) = file_of(b"still here");
    let file = ModelFile::open(&path).unwrap();
    let bytes = GpuBytes::map(&Device::host(), file.mapping(), 0..10).unwrap();
    let view = bytes.view(0, 5).unwrap();
    drop(file);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(view.as_slice(), b"still");
}
