//! [`Ints`] on arrays.

use crate::arch::ints::{Ints, Kernel};
use crate::caps::Scalar;

/// One expression for each lane.
macro_rules! lanes {
    ($i:ident => $value:expr) => {
        std::array::from_fn(
            #[inline]
            |$i| $value,
        )
    };
}

pub(super) use lanes;

impl Ints for Scalar {
    type H = [i16; 16];

    #[inline(never)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }

    #[inline(always)]
    fn prefetch<T>(self, _start: &T, _offset: usize) {}

    #[inline(always)]
    fn load_i16(self, from: &[i16; 16]) -> [i16; 16] {
        *from
    }

    #[inline(always)]
    fn store_i16(self, v: [i16; 16], to: &mut [i16; 16]) {
        *to = v;
    }

    #[inline(always)]
    fn load_u16(self, from: &[u16; 16]) -> [i16; 16] {
        from.map(u16::cast_signed)
    }

    #[inline(always)]
    fn splat_i16(self, x: i16) -> [i16; 16] {
        [x; 16]
    }

    #[inline(always)]
    fn widen_u8(self, from: &[u8; 16]) -> [i16; 16] {
        from.map(i16::from)
    }

    #[inline(always)]
    fn widen_i8(self, from: &[i8; 16]) -> [i16; 16] {
        from.map(i16::from)
    }

    #[inline(always)]
    fn lookup_i16(self, table: &[i8; 16], index: [i16; 16]) -> [i16; 16] {
        lanes!(i => i16::from(table[(index[i] & 15) as usize]))
    }

    #[inline(always)]
    fn and_i16(self, a: [i16; 16], b: [i16; 16]) -> [i16; 16] {
        lanes!(i => a[i] & b[i])
    }

    #[inline(always)]
    fn shr_i16(self, a: [i16; 16], n: usize) -> [i16; 16] {
        lanes!(i => (a[i].cast_unsigned() >> n).cast_signed())
    }

    #[inline(always)]
    fn splat_pair(self, pair: &[i16; 2]) -> [i16; 16] {
        lanes!(i => pair[i % 2])
    }

    #[inline(always)]
    fn dot(self, acc: [i32; 8], a: [i16; 16], b: [i16; 16]) -> [i32; 8] {
        lanes!(l => {
            let even = i32::from(a[2 * l]) * i32::from(b[2 * l]);
            let odd = i32::from(a[2 * l + 1]) * i32::from(b[2 * l + 1]);
            acc[l].wrapping_add(even).wrapping_add(odd)
        })
    }

    #[inline(always)]
    fn max_int(self, a: [i32; 8], b: [i32; 8]) -> [i32; 8] {
        lanes!(i => a[i].max(b[i]))
    }

    #[inline(always)]
    fn fold_max(self, a: [i32; 8]) -> i32 {
        a.into_iter().fold(i32::MIN, i32::max)
    }

    #[inline(always)]
    fn pair_sums(self, [a, b, c, d]: [[i32; 8]; 4]) -> [[i16; 2]; 2] {
        let sum = |a: [i32; 8], b: [i32; 8], i: usize| {
            (a[i] + a[i + 1] + a[i + 4] + a[i + 5] + b[i] + b[i + 1] + b[i + 4] + b[i + 5]) as i16
        };
        [[sum(a, b, 0), sum(a, b, 2)], [sum(c, d, 0), sum(c, d, 2)]]
    }

    #[inline(always)]
    fn fold_rows(self, rows: [[i32; 8]; 8]) -> [i32; 8] {
        lanes!(r => rows[r].into_iter().fold(0, i32::wrapping_add))
    }

    #[inline(always)]
    fn narrow(self, low: [i32; 8], high: [i32; 8]) -> [i16; 16] {
        lanes!(i => if i < 8 { low[i] } else { high[i - 8] } as i16)
    }

    #[inline(always)]
    fn store_i8(self, x: [[i32; 8]; 4], out: &mut [i8; 32]) {
        *out = lanes!(i => x[i / 8][i % 8] as i8);
    }

    #[inline(always)]
    fn to_f32(self, a: [i32; 8]) -> [f32; 8] {
        a.map(|x| x as f32)
    }

    #[inline(always)]
    fn load_bf16(self, bits: &[u16; 8]) -> [f32; 8] {
        bits.map(|bits| f32::from_bits(u32::from(bits) << 16))
    }

    #[inline(always)]
    fn round(self, a: [f32; 8]) -> [i32; 8] {
        a.map(|x| x.round_ties_even() as i32)
    }
}
