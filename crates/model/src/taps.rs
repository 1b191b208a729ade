//! Named taps: the places of a forward pass whose values can be recorded and compared.

/// A place in the forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tap {
    /// The residual stream before the first layer. `(n_embd)`
    Embd,
    /// The normed input of a layer's attention. `(n_embd)`
    AttnNorm,
    /// Queries, after norm and rotation. `(n_head * head_dim)`
    Q,
    /// Keys, after norm and rotation, before they are rounded. `(n_head_kv * head_dim)`
    K,
    /// Values, before they are rounded. `(n_head_kv * head_dim)`
    V,
    /// The output projection of attention, before its post norm. `(n_embd)`
    AttnOut,
    /// The down projection of the feed-forward block, before its post norm. `(n_embd)`
    FfnOut,
    /// The residual stream after a layer. `(n_embd)`
    LOut,
    /// The logits, scaled and capped. `(n_vocab)`
    Logits,
}

impl Tap {
    /// Every tap, in the order in which a layer reaches them.
    pub const ALL: [Self; 9] =
        [Self::Embd, Self::AttnNorm, Self::Q, Self::K, Self::V, Self::AttnOut, Self::FfnOut, Self::LOut, Self::Logits];

    /// The tap's name, as files and messages spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embd => "embd",
            Self::AttnNorm => "attn_norm",
            Self::Q => "q",
            Self::K => "k",
            Self::V => "v",
            Self::AttnOut => "attn_out",
            Self::FfnOut => "ffn_out",
            Self::LOut => "l_out",
            Self::Logits => "logits",
        }
    }

    /// The tap of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tap| tap.name() == name)
    }
}

/// Where and when a tap was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapPoint {
    /// Which tap.
    pub tap: Tap,
    /// Which layer; `None` before the first and after the last.
    pub layer: Option<usize>,
    /// Which span of the batch.
    pub span: usize,
    /// Position of the token in its sequence.
    pub pos: usize,
}

/// Receives the values of taps.
///
/// A recording forward pass computes what an unrecorded one does, to the bit; it only stops to look.
pub trait TapSink {
    /// Takes the values of one tap for one token.
    fn record(&mut self, point: TapPoint, values: &[f32]);
}
