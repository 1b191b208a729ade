//! Operands over buffers that live as long as the test.
#![allow(dead_code, reason = "each test binary uses its part")]

use muser_memory::{Device, GpuBuffer, GpuByteView, GpuBytes, KvGeometry, KvPlane};
use muser_ops::{Matrix, Norm, Rows, RowsMut, Vector};
use muser_quant::{WeightType, encode_row};

pub fn buffer(values: &[f32]) -> &'static mut GpuBuffer {
    let mut buffer = GpuBuffer::zeros(&Device::host(), values.len()).expect("memory");
    buffer.as_mut_slice().copy_from_slice(values);
    Box::leak(Box::new(buffer))
}

/// Rows of these values.
pub fn rows(width: usize, values: &[f32]) -> Rows<'static> {
    Rows::new(buffer(values), values.len() / width, width).expect("whole rows")
}

pub fn rows_mut(width: usize, values: &[f32]) -> RowsMut<'static> {
    RowsMut::new(buffer(values), values.len() / width, width).expect("whole rows")
}

pub fn bytes(bytes: &[u8]) -> GpuByteView<'static> {
    let bytes: &'static GpuBytes = Box::leak(Box::new(GpuBytes::from_slice(&Device::host(), bytes).expect("memory")));
    bytes.view(0, bytes.len()).expect("all of them")
}

/// A matrix of these values, as exactly as the type holds them.
pub fn matrix(ty: WeightType, cols: usize, values: &[f32]) -> Matrix<'static> {
    let row_bytes = ty.row_bytes(cols).expect("whole blocks");
    let mut encoded = vec![0; values.len() / cols * row_bytes];
    for (row, values) in encoded.chunks_exact_mut(row_bytes).zip(values.chunks_exact(cols)) {
        encode_row(ty, values, row).expect("finite values");
    }
    Matrix::new(bytes(&encoded), ty, values.len() / cols, cols).expect("a matrix")
}

pub fn vector(values: &[f32]) -> Vector<'static> {
    let le: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Vector::new(bytes(&le), values.len()).expect("a vector")
}

pub fn norm(weight: &[f32], eps: f32) -> Norm<'static> {
    Norm { weight: Some(vector(weight)), eps }
}

pub fn plane(n_head_kv: usize, head_dim: usize, rows: usize) -> KvPlane {
    KvPlane::zeros(&Device::host(), KvGeometry { n_head_kv, head_dim, rows }).expect("memory")
}

/// A plane that holds the positions up to `end`, all of its values `value`.
pub fn filled(n_head_kv: usize, head_dim: usize, rows: usize, end: usize, value: f32) -> &'static KvPlane {
    let mut plane = plane(n_head_kv, head_dim, rows);
    let values = vec![value; end * n_head_kv * head_dim];
    plane.append(0, &values, &values).expect("rows");
    Box::leak(Box::new(plane))
}
