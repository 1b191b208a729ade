//! What a service is doing at one moment.

use super::RequestId;

/// A snapshot of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The slots.
    pub slots: Vec<SlotStatus>,
    /// Longest sequence of a slot, in tokens.
    pub n_ctx: usize,
    /// Most tokens in one batch.
    pub n_batch: usize,
    /// Requests that wait for a slot.
    pub n_waiting: usize,
    /// Most that may wait.
    pub max_queue: usize,
    /// Ended sessions that are kept for their prefixes.
    pub prefix_cache: PrefixCacheStatus,
    /// Bytes of the keys and values that slots hold.
    pub kv_used_bytes: u64,
    /// Bytes of all slots' planes.
    pub kv_planned_bytes: u64,
    /// What computes, in words.
    pub backend: String,
    /// Whether no more requests are taken.
    pub is_shutting_down: bool,
    /// Whether the engine thread has ended.
    pub is_ended: bool,
}

/// A snapshot of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotStatus {
    /// What it does.
    pub state: SlotState,
    /// What it works on.
    pub request: Option<RequestId>,
    /// Tokens that its session holds.
    pub n_held: usize,
    /// Tokens of the request's prompt.
    pub n_prompt: usize,
    /// How many of them were not processed again.
    pub n_reused: usize,
    /// Tokens of the answer so far.
    pub n_generated: usize,
}

/// What a slot does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Nothing; its session is kept for what follows.
    Idle,
    /// It processes a prompt.
    Prefill,
    /// It makes an answer.
    Decode,
}

impl SlotState {
    /// The state in one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// Ended sessions that are kept for their prefixes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixCacheStatus {
    /// How many there are.
    pub n_entries: usize,
    /// Tokens that they hold.
    pub n_tokens: usize,
    /// Bytes that they take.
    pub size_bytes: u64,
    /// The most that they may take.
    pub budget_bytes: u64,
}
