// Two sums over the words of a range of bytes, which depend on every byte and on where it is. Sums of unsigned integers wrap,
// so the order in which invocations add does not matter. `self_test::checksum` is the same for the host.

struct Range {
    // Where the range begins in `words`, in bytes.
    first_byte: u32,
    // Bytes; those that the last word lacks count as zero.
    n_bytes: u32,
}

@group(0) @binding(0) var<storage, read> words: array<u32>;
@group(0) @binding(1) var<storage, read> range: Range;
@group(0) @binding(2) var<storage, read_write> sums: array<atomic<u32>, 2>;

// Word number `k` of the range, which need not begin on a word of the buffer.
fn word(k: u32) -> u32 {
    let byte = range.first_byte + 4u * k;
    let shift = 8u * (byte % 4u);
    var value = words[byte / 4u] >> shift;
    if shift > 0u {
        value |= words[byte / 4u + 1u] << (32u - shift);
    }
    let left = range.n_bytes - 4u * k;
    if left < 4u {
        value &= (1u << (8u * left)) - 1u;
    }
    return value;
}

@compute @workgroup_size(64)
fn checksum(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
) {
    var first = 0u;
    var second = 0u;
    let n_words = (range.n_bytes + 3u) / 4u;
    for (var k = id.x; k < n_words; k += 64u * n_workgroups.x) {
        var h = word(k) ^ (k * 0x9e3779b1u);
        h = (h ^ (h >> 15u)) * 0x85ebca77u;
        h = h ^ (h >> 13u);
        first += h;
        second += (h ^ (h >> 16u)) * 0xc2b2ae3du;
    }
    atomicAdd(&sums[0], first);
    atomicAdd(&sums[1], second);
}
