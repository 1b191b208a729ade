//! The reference backend: products of every weight type, and attention. One thread; items are multiply-adds.

use std::num::NonZero;

use divan::Bencher;
use divan::counter::ItemsCount;
use muser_memory::{Device, GpuBuffer, GpuBytes, KvGeometry, KvPlane};
use muser_ops::{Attention, AttentionSpan, Backend, Checked, Matrix, Product, Project, Reference, Rows, RowsMut};
use muser_quant::{WeightType, encode_row};

fn main() {
    divan::main();
}

/// Values between -1 and 1 that look random.
fn noise(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i as u32).wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

fn buffer(values: &[f32]) -> GpuBuffer {
    let mut buffer = GpuBuffer::zeros(&Device::host(), values.len()).expect("memory");
    buffer.as_mut_slice().copy_from_slice(values);
    buffer
}

#[divan::bench(args = WeightType::ALL, consts = [1, 256], sample_count = 20)]
fn product<const N: usize>(bencher: Bencher<'_, '_>, ty: WeightType) {
    const ROWS: usize = 512;
    const COLS: usize = 1536;
    let row_bytes = ty.row_bytes(COLS).expect("whole blocks");
    let mut bytes = vec![0; ROWS * row_bytes];
    for (row, values) in bytes.chunks_exact_mut(row_bytes).zip(noise(ROWS * COLS).chunks_exact(COLS)) {
        encode_row(ty, values, row).expect("finite values");
    }
    let weight = GpuBytes::from_slice(&Device::host(), &bytes).expect("memory");
    let (x, mut out) = (buffer(&noise(N * COLS)), buffer(&vec![0.0; N * ROWS]));
    let mut backend = Reference::new(NonZero::<usize>::MIN);
    bencher.counter(ItemsCount::new(ROWS * COLS * N)).bench_local(|| {
        let weight = Matrix::new(weight.view(0, bytes.len()).expect("all bytes"), ty, ROWS, COLS).expect("a matrix");
        let out = RowsMut::new(&mut out, N, ROWS).expect("rows");
        let x = Rows::new(&x, N, COLS).expect("rows");
        let op = Project { x, norm: None, products: &mut [Product { weight, out }] };
        backend.project(Checked::new(op).expect("fitting operands")).expect("a product");
    });
}

#[divan::bench(args = [256, 2304], consts = [1, 256], sample_count = 10)]
fn attention<const N: usize>(bencher: Bencher<'_, '_>, end: usize) {
    const N_HEAD: usize = 9;
    let geometry = KvGeometry { n_head_kv: 3, head_dim: 64, rows: end };
    let mut plane = KvPlane::zeros(&Device::host(), geometry).expect("memory");
    let rows = noise(end * geometry.n_head_kv * geometry.head_dim);
    plane.append(0, &rows, &rows).expect("room");
    let width = N_HEAD * geometry.head_dim;
    let (q, mut out) = (buffer(&noise(N * width)), buffer(&vec![0.0; N * width]));
    let mut backend = Reference::new(NonZero::<usize>::MIN);
    bencher.counter(ItemsCount::new(2 * N * (end - N / 2) * width)).bench_local(|| {
        let op = Attention {
            q: Rows::new(&q, N, width).expect("rows"),
            spans: &[AttentionSpan { n: N, pos: end - N, plane: &plane }],
            n_head: N_HEAD,
            window: None,
            scale: 0.125,
            soft_cap: None,
            gate: None,
            out: RowsMut::new(&mut out, N, width).expect("rows"),
        };
        backend.attention(Checked::new(op).expect("fitting operands")).expect("attention");
    });
}
