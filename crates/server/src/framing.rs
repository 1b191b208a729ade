//! How a request says where its body ends.
//!
//! What a proxy in front reads in another way than this server does lets one request pass as two. So a request that leaves a
//! choice is refused, and its connection closed.

use axum::http::{HeaderMap, Method, StatusCode, header};

use crate::reply::{ApiError, ApiResult, MAX_HEAD_BYTES};

/// Marks a request whose body has two lengths. HTTP's implementation has taken one of them out.
#[derive(Clone, Copy, Debug)]
pub struct TwoLengths;

/// The bytes of a head as they came, for what HTTP's implementation does not show.
#[derive(Debug, Default)]
pub struct RawHead(Vec<u8>);

impl RawHead {
    /// Takes what came next, as much of it as a head may have.
    pub fn extend(&mut self, bytes: &[u8]) {
        let room = MAX_HEAD_BYTES.saturating_sub(self.0.len());
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Whether it has a `Content-Length`. Of a request that came in one piece with the one before, the beginning is missing;
    /// nothing is known of its head.
    pub fn has_content_length(&self, method: &Method) -> bool {
        let lines = self.0.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        let mut lines = lines.skip_while(|line| line.is_empty());
        let is_whole = lines.next().is_some_and(|first| {
            let target = first.strip_prefix(method.as_str().as_bytes());
            target.is_some_and(|target| target.starts_with(b" ") && target.ends_with(b" HTTP/1.1"))
        });
        let mut names =
            lines.take_while(|line| !line.is_empty()).filter_map(|line| line.split(|byte| *byte == b':').next());
        is_whole && names.any(|name| name.eq_ignore_ascii_case(header::CONTENT_LENGTH.as_str().as_bytes()))
    }
}

/// Checks that a body comes in the one transfer coding that is read, and has one length.
///
/// # Errors
/// It does not.
pub fn check_coding(headers: &HeaderMap, has_two_lengths: bool) -> ApiResult<()> {
    let invalid = |message: &str| Err(ApiError::new(StatusCode::BAD_REQUEST, "invalid_http", message));
    let codings = || values(headers, &header::TRANSFER_ENCODING);
    if let Some(other) = codings().find(|coding| !coding.eq_ignore_ascii_case(b"chunked")) {
        let other = shown(other);
        let message = format!("bodies with Transfer-Encoding {other:?} are not read; expected \"chunked\", or none");
        return Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, "unsupported_encoding", message));
    }
    if codings().nth(1).is_some() {
        return invalid("`Transfer-Encoding` names \"chunked\" more than once; expected it once, or none");
    }
    if has_two_lengths {
        return invalid("`Content-Length` and `Transfer-Encoding` stand in one request; expected one of them");
    }
    Ok(())
}

/// Checks that nothing is expected but to be told whether to send the body.
///
/// # Errors
/// Something else is.
pub fn check_expectation(headers: &HeaderMap) -> ApiResult<()> {
    match values(headers, &header::EXPECT).find(|value| !value.eq_ignore_ascii_case(b"100-continue")) {
        None => Ok(()),
        Some(other) => {
            let message = format!("`Expect` is {:?}; expected \"100-continue\", or none", shown(other));
            Err(ApiError::new(StatusCode::EXPECTATION_FAILED, "expectation_failed", message))
        }
    }
}

/// The values of a header that lists them, however many lines it has.
pub fn values<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let lines = headers.get_all(name).into_iter();
    let values = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    values.map(<[u8]>::trim_ascii).filter(|value| !value.is_empty())
}

/// A value as messages show it.
pub fn shown(value: &[u8]) -> String {
    String::from_utf8_lossy(value).chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_content_length(parts: &[&str]) -> bool {
        let mut head = RawHead::default();
        parts.iter().for_each(|part| head.extend(part.as_bytes()));
        head.has_content_length(&Method::POST)
    }

    #[test]
    fn a_length_is_found_in_heads_only_and_in_whole_ones_only() {
        let first = "POST / HTTP/1.1\r\n";
        assert!(has_content_length(&["\r\n", first, "A: b\r\ncontent-", "LENGTH: 5\r\n\r\n"]));
        assert!(has_content_length(&["POST / HTTP/1.1\nContent-Length:5\n\n"]));
        assert!(!has_content_length(&[first, "A: b\r\n\r\nContent-Length: 5\r\n"]), "the body's");
        assert!(!has_content_length(&["in: x\r\nContent-Length: 5\r\n\r\n"]), "its beginning is missing");
        assert!(!has_content_length(&["GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n"]), "another's");
        let long = format!("A: {}\r\n", "a".repeat(MAX_HEAD_BYTES));
        assert!(!has_content_length(&[first, &long, "Content-Length: 5\r\n\r\n"]), "no head is so long");
    }
}
