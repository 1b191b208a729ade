//! Operands are valid by construction, and operations only run on operands that fit together. Every refusal names the
//! quantity and both numbers.

mod common;

use common::{buffer, bytes, filled, matrix, norm, plane, rows, rows_mut, vector};
use muser_ops::{
    Activation, Add, Append, Attention, AttentionSpan, Cap, Checked, Embed, Error, Gated, Gather, Heads, Matrix, Norm,
    NormRows, Operands, Pairing, Product, Project, Rope, Rows, RowsMut, Vector,
};
use muser_quant::WeightType::{self, F32, Q8_0};

fn refusal<T: Operands>(operands: T) -> String {
    Checked::new(operands).err().expect("operands that do not fit").to_string()
}

fn accepted<T: Operands>(operands: T) {
    if let Err(error) = Checked::new(operands) {
        panic!("{error}");
    }
}

fn zeros(n: usize, width: usize) -> Rows<'static> {
    rows(width, &vec![0.0; n * width])
}

fn out(n: usize, width: usize) -> RowsMut<'static> {
    rows_mut(width, &vec![0.0; n * width])
}

fn weights(rows: usize, cols: usize) -> Matrix<'static> {
    matrix(F32, cols, &vec![0.0; rows * cols])
}

fn gains(len: usize) -> Norm<'static> {
    norm(&vec![1.0; len], 1e-5)
}

#[test]
fn a_matrix_has_as_many_bytes_as_its_shape_takes() {
    let message = |size: usize, ty: WeightType, rows: usize, cols: usize| {
        Matrix::new(bytes(&vec![0; size]), ty, rows, cols).err().expect("a refusal").to_string()
    };
    assert_eq!(message(33, Q8_0, 1, 32), "matrix: size in bytes is 33, expected 34");
    assert_eq!(message(69, Q8_0, 2, 32), "matrix: size in bytes is 69, expected 68");
    assert_eq!(message(34, Q8_0, 0, 32), "matrix: rows is 0, which is out of range (at least 1)");
    assert_eq!(message(34, Q8_0, 1, 0), "matrix: cols is 0, which is out of range (at least 1)");
    let expected =
        format!("matrix: rows is {}, which is out of range (a size that fits the address space)", usize::MAX);
    assert_eq!(message(34, Q8_0, usize::MAX, 32), expected);
    let ragged = Matrix::new(bytes(&[0; 34]), Q8_0, 1, 31).err().expect("a refusal");
    assert!(matches!(ragged, Error::Quant(_)), "{ragged}");

    let encoded: Vec<u8> = (0..68).collect();
    let matrix = Matrix::new(bytes(&encoded), Q8_0, 2, 32).expect("a matrix");
    assert_eq!((matrix.ty(), matrix.rows(), matrix.cols(), matrix.row_bytes()), (Q8_0, 2, 32, 34));
    assert_eq!((matrix.bytes(), matrix.row(0), matrix.row(1)), (&encoded[..], &encoded[..34], &encoded[34..]));
    assert_eq!((matrix.view().len(), matrix.scale()), (68, 1.0));
    assert_eq!((matrix.with_scale(0.5).scale(), matrix.with_scale(0.5).row(1)), (0.5, matrix.row(1)));
}

#[test]
fn a_vector_is_whole_and_aligned() {
    let message = |view, len| Vector::new(view, len).err().expect("a refusal").to_string();
    assert_eq!(message(bytes(&[0; 12]), 4), "vector: size in bytes is 12, expected 16");
    let expected = format!("vector: size in bytes is 12, expected {}", usize::MAX);
    assert_eq!(message(bytes(&[0; 12]), usize::MAX / 2), expected);
    let shifted = bytes(&[0; 12]).buffer().view(2, 8).expect("a part");
    assert_eq!(message(shifted, 2), "the bytes of a vector of 2 f32 values are not aligned to 4 bytes");
    let vector = vector(&[1.0, -2.5]);
    assert_eq!((vector.values(), vector.view().len()), (&[1.0, -2.5][..], 8));
}

#[test]
fn rows_lie_in_their_buffer() {
    let message = |n: usize, width: usize| {
        let expected = Rows::new(buffer(&[0.0; 12]), n, width).err().expect("a refusal").to_string();
        assert_eq!(RowsMut::new(buffer(&[0.0; 12]), n, width).err().expect("a refusal").to_string(), expected);
        expected
    };
    assert_eq!(message(4, 4), "rows: length of the buffer is 12, expected 16");
    assert_eq!(message(2, usize::MAX), format!("rows: length of the buffer is 12, expected {}", usize::MAX));
    assert_eq!(message(0, 4), "rows: number of rows is 0, which is out of range (at least 1)");
    assert_eq!(message(4, 0), "rows: width is 0, which is out of range (at least 1)");

    let values: Vec<f32> = (0..14u8).map(f32::from).collect();
    let rows = Rows::new(buffer(&values), 3, 4).expect("rows");
    assert_eq!((rows.n(), rows.width(), rows.values(), rows.row(2)), (3, 4, &values[..12], &values[8..12]));
    let mut rows = RowsMut::new(buffer(&values), 3, 4).expect("rows");
    assert_eq!((rows.n(), rows.width(), rows.values()), (3, 4, &values[..12]));
    rows.values_mut()[11] = 99.0;
    assert_eq!((rows.buffer().0.as_slice()[11], rows.buffer().1), (99.0, 0));
}

#[test]
fn a_slice_of_rows_lies_in_the_rows() {
    let values: Vec<f32> = (0..12u8).map(f32::from).collect();
    let message = |first: usize, n: usize| {
        let expected = rows(3, &values).slice(first, n).err().expect("a refusal").to_string();
        assert_eq!(rows_mut(3, &values).slice(first, n).err().expect("a refusal").to_string(), expected);
        expected
    };
    assert_eq!(message(2, 3), "rows: end of a slice is 5, expected 4");
    assert_eq!(message(usize::MAX, 2), format!("rows: end of a slice is {}, expected 4", usize::MAX));
    assert_eq!(message(1, 0), "rows: number of rows is 0, which is out of range (at least 1)");
    let inner = rows(3, &values).slice(1, 3).and_then(|rows| rows.slice(1, 2)).expect("a slice of a slice");
    assert_eq!((inner.values(), inner.row(1), inner.buffer().1), (&values[6..], &values[9..], 6));
    inner.slice(1, 2).err().expect("a slice past the slice, though inside the buffer");
    let mut inner = rows_mut(3, &values).slice(1, 3).and_then(|rows| rows.slice(1, 2)).expect("a slice of a slice");
    assert_eq!((inner.values(), inner.buffer().1), (&values[6..], 6));
    assert_eq!(inner.values_mut(), &values[6..]);
}

#[test]
fn embeddings_are_of_tokens_in_the_table() {
    let op = |tokens: &'static [u32], out, norm| Embed { tokens, table: weights(5, 4), scale: 1.0, norm, out };
    accepted(op(&[0, 4], out(2, 4), Some(gains(4))));
    assert_eq!(refusal(op(&[0, 4], out(3, 4), None)), "embed: number of output rows is 3, expected 2");
    assert_eq!(refusal(op(&[0, 4], out(2, 3), None)), "embed: width of the output is 3, expected 4");
    assert_eq!(
        refusal(op(&[0, 5], out(2, 4), None)),
        "embed: token id is 5, which is out of range (below the vocabulary's size)"
    );
    assert_eq!(refusal(op(&[0, 4], out(2, 4), Some(gains(3)))), "embed: length of the norm's weight is 3, expected 4");
}

#[test]
fn gathered_rows_are_there() {
    let op = |rows: &'static [usize], out| Gather { x: zeros(3, 4), rows, out };
    accepted(op(&[2, 0, 0, 1], out(4, 4)));
    assert_eq!(refusal(op(&[2], out(2, 4))), "gather: number of output rows is 2, expected 1");
    assert_eq!(refusal(op(&[2], out(1, 5))), "gather: width of the output is 5, expected 4");
    assert_eq!(
        refusal(op(&[0, 3], out(2, 4))),
        "gather: row is 3, which is out of range (below the number of input rows)"
    );
}

#[test]
fn a_norm_keeps_the_shape() {
    let op = |weight, out| NormRows { x: zeros(3, 4), norm: norm(&vec![1.0; weight], 0.1), out };
    accepted(op(4, out(3, 4)));
    assert_eq!(refusal(op(4, out(2, 4))), "norm: number of output rows is 2, expected 3");
    assert_eq!(refusal(op(4, out(3, 5))), "norm: width of the output is 5, expected 4");
    assert_eq!(refusal(op(5, out(3, 4))), "norm: length of the norm's weight is 5, expected 4");
}

#[test]
fn every_product_fits_its_input() {
    let refusal = |weight, out, norm| {
        let good = Product { weight: weights(2, 4), out: self::out(3, 2) };
        refusal(Project { x: zeros(3, 4), norm, products: &mut [good, Product { weight, out }] })
    };
    accepted(Project {
        x: zeros(3, 4),
        norm: Some(gains(4)),
        products: &mut [Product { weight: weights(6, 4), out: out(3, 6) }],
    });
    assert_eq!(refusal(weights(6, 5), out(3, 6), None), "project: columns of the weight is 5, expected 4");
    assert_eq!(refusal(weights(6, 4), out(3, 7), None), "project: width of the output is 7, expected 6");
    assert_eq!(refusal(weights(6, 4), out(4, 6), None), "project: number of output rows is 4, expected 3");
    assert_eq!(
        refusal(weights(6, 4), out(3, 6), Some(gains(6))),
        "project: length of the norm's weight is 6, expected 4"
    );
}

#[test]
fn gate_and_up_have_one_shape() {
    let op = |gate, up, out, norm| Gated { x: zeros(3, 4), norm, gate, up, activation: Activation::Silu, out };
    accepted(op(weights(6, 4), weights(6, 4), out(3, 6), Some(gains(4))));
    let refusal = |gate, up, out, norm| refusal(op(gate, up, out, norm));
    assert_eq!(refusal(weights(6, 3), weights(6, 4), out(3, 6), None), "gated: columns of the gate is 3, expected 4");
    assert_eq!(
        refusal(weights(6, 4), weights(6, 5), out(3, 6), None),
        "gated: columns of the up projection is 5, expected 4"
    );
    assert_eq!(
        refusal(weights(6, 4), weights(7, 4), out(3, 6), None),
        "gated: rows of the up projection is 7, expected 6"
    );
    assert_eq!(refusal(weights(6, 4), weights(6, 4), out(3, 7), None), "gated: width of the output is 7, expected 6");
    assert_eq!(refusal(weights(6, 4), weights(6, 4), out(1, 6), None), "gated: number of output rows is 1, expected 3");
    assert_eq!(
        refusal(weights(6, 4), weights(6, 4), out(3, 6), Some(gains(6))),
        "gated: length of the norm's weight is 6, expected 4"
    );
}

#[test]
fn heads_divide_the_width_and_angles_their_dimension() {
    let op = |head_dim, norm, rope| Heads { x: out(3, 12), head_dim, norm, rope };
    let angles = |cos, sin| Some(Rope { cos, sin, pairing: Pairing::Half });
    accepted(op(4, Some(gains(4)), angles(zeros(3, 2), zeros(3, 2))));
    accepted(op(12, None, angles(zeros(3, 1), zeros(3, 1))));
    let refusal = |head_dim, norm, rope| refusal(op(head_dim, norm, rope));
    assert_eq!(refusal(0, None, None), "heads: head_dim is 0, which is out of range (at least 1)");
    assert_eq!(refusal(5, None, None), "heads: remainder of the width by head_dim is 2, expected 0");
    assert_eq!(refusal(4, Some(gains(12)), None), "heads: length of the norm's weight is 12, expected 4");
    assert_eq!(refusal(4, None, angles(zeros(2, 2), zeros(3, 2))), "heads: number of cosine rows is 2, expected 3");
    assert_eq!(refusal(4, None, angles(zeros(3, 2), zeros(4, 2))), "heads: number of sine rows is 4, expected 3");
    assert_eq!(refusal(4, None, angles(zeros(3, 2), zeros(3, 1))), "heads: width of the sines is 1, expected 2");
    assert_eq!(
        refusal(4, None, angles(zeros(3, 3), zeros(3, 3))),
        "heads: n_rot is 6, which is out of range (at most head_dim)"
    );
}

#[test]
fn appended_rows_follow_the_plane() {
    let refusal = |pos, k, v| {
        let mut plane = plane(2, 4, 8);
        plane.append(0, &[0.0; 24], &[0.0; 24]).expect("three rows");
        refusal(Append { plane: &mut plane, pos, k, v })
    };
    accepted(Append { plane: &mut plane(2, 4, 8), pos: 0, k: zeros(2, 8), v: zeros(2, 8) });
    assert_eq!(refusal(3, zeros(2, 7), zeros(2, 8)), "append: width of the keys is 7, expected 8");
    assert_eq!(refusal(3, zeros(2, 8), zeros(2, 9)), "append: width of the values is 9, expected 8");
    assert_eq!(refusal(3, zeros(2, 8), zeros(1, 8)), "append: number of value rows is 1, expected 2");
    assert_eq!(refusal(4, zeros(2, 8), zeros(2, 8)), "append: position is 4, expected 3");
}

/// An attention of three rows in two sequences: positions 4 and 5 of one, position 0 of another.
fn attention(change: impl FnOnce(&mut Attention<'static>)) -> Attention<'static> {
    let spans = vec![
        AttentionSpan { n: 2, pos: 4, plane: filled(2, 4, 8, 6, 0.0) },
        AttentionSpan { n: 1, pos: 0, plane: filled(2, 4, 8, 1, 0.0) },
    ];
    let mut attention = Attention {
        q: zeros(3, 16),
        spans: spans.leak(),
        n_head: 4,
        window: None,
        scale: 0.5,
        soft_cap: None,
        gate: Some(zeros(3, 16)),
        out: out(3, 16),
    };
    change(&mut attention);
    attention
}

#[test]
fn attention_is_of_rows_that_its_planes_hold() {
    let refusal = |change: fn(&mut Attention<'static>)| refusal(attention(change));
    accepted(attention(|_| {}));
    assert_eq!(refusal(|a| a.spans = &a.spans[..1]), "attention: rows covered by the spans is 2, expected 3");
    assert_eq!(refusal(|a| a.out = out(2, 16)), "attention: number of output rows is 2, expected 3");
    assert_eq!(refusal(|a| a.out = out(3, 15)), "attention: width of the output is 15, expected 16");
    assert_eq!(refusal(|a| a.gate = Some(zeros(2, 16))), "attention: number of gate rows is 2, expected 3");
    assert_eq!(refusal(|a| a.gate = Some(zeros(3, 4))), "attention: width of the gate is 4, expected 16");
    assert_eq!(refusal(|a| a.window = Some(0)), "attention: window is 0, which is out of range (at least 1)");
    assert_eq!(refusal(|a| a.n_head = 3), "attention: width of the queries is 16, expected 12");
    let expected = format!("attention: width of the queries is 16, expected {}", usize::MAX);
    assert_eq!(refusal(|a| a.n_head = usize::MAX), expected);
    assert_eq!(
        refusal(|a| {
            let [first, second] = *a.spans else { unreachable!("there are two") };
            a.spans = vec![AttentionSpan { n: 3, pos: 3, ..first }, AttentionSpan { n: 0, ..second }].leak();
        }),
        "attention: number of rows of a span is 0, which is out of range (at least 1)"
    );
    assert_eq!(
        refusal(|a| {
            (a.q, a.out, a.gate, a.n_head) = (zeros(3, 12), out(3, 12), None, 3);
        }),
        "attention: n_head is 3, which is out of range (a multiple of the number of KV heads)"
    );
    assert_eq!(
        refusal(|a| {
            let [first, second] = *a.spans else { unreachable!("there are two") };
            a.spans = vec![AttentionSpan { pos: 3, ..first }, second].leak();
        }),
        "attention: end of the span is 5, expected 6"
    );
}

#[test]
fn attention_past_a_wrapped_plane_is_refused() {
    // Twelve positions in eight rows: those before position 4 are gone.
    let op = |n: usize, window| {
        let spans = vec![AttentionSpan { n, pos: 12 - n, plane: filled(1, 4, 8, 12, 0.0) }];
        let (q, out) = (zeros(n, 4), out(n, 4));
        Attention { q, spans: spans.leak(), n_head: 1, window, scale: 1.0, soft_cap: None, gate: None, out }
    };
    accepted(op(1, Some(8)));
    accepted(op(3, Some(6)));
    let message = |first| {
        format!(
            "attention: first position held by the plane is {first}, which is out of range (at most the first visible \
             position)"
        )
    };
    assert_eq!(refusal(op(1, Some(9))), message(4));
    assert_eq!(refusal(op(4, Some(6))), message(4));
    assert_eq!(refusal(op(1, None)), message(4));
}

#[test]
fn an_addition_is_of_equal_shapes() {
    let op = |norm, residual| Add { x: zeros(3, 4), norm, residual };
    accepted(op(Some(gains(4)), out(3, 4)));
    assert_eq!(refusal(op(None, out(2, 4))), "add: number of residual rows is 2, expected 3");
    assert_eq!(refusal(op(None, out(3, 5))), "add: width of the residual is 5, expected 4");
    assert_eq!(refusal(op(Some(gains(3)), out(3, 4))), "add: length of the norm's weight is 3, expected 4");
    accepted(Cap { x: out(3, 4), scale: 2.0, cap: Some(3.0) });
}

#[test]
fn checked_operands_are_those_that_were_given() {
    let Cap { x, scale, cap } = Checked::new(Cap { x: out(3, 4), scale: 2.0, cap: None }).expect("a fit").into_inner();
    assert_eq!((x.n(), x.width(), scale, cap), (3, 4, 2.0, None));
}
