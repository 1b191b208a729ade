//! Who may use the server: clients that know it by one of its names, come from no foreign page, and have a key if there
//! are any.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::body::discard;
use crate::framing::{TwoLengths, check_coding, check_expectation};
use crate::reply::{ApiError, ApiResult, MAX_HEAD_BYTES};

/// The one route that tells nobody anything.
const OPEN_ROUTE: &str = "/health";

/// Refuses requests that must not come through.
pub async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (headers, uri) = (request.headers(), request.uri());
    let has_two_lengths = request.extensions().get::<TwoLengths>().is_some();
    let read = check_size(request.method(), headers, uri)
        .and_then(|()| check_coding(headers, has_two_lengths))
        .and_then(|()| check_expectation(headers));
    if let Err(error) = read {
        // Where the next request begins is not known.
        discard(request.into_body());
        return ([(header::CONNECTION, "close")], error).into_response();
    }
    let checked = check_host(&app, headers, uri)
        .and_then(|()| check_origin(headers))
        .and_then(|()| if uri.path() == OPEN_ROUTE { Ok(()) } else { check_key(&app, headers) });
    match checked {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// What reads heads stops reading where they pass the limit, which may be some way behind it.
fn check_size(method: &Method, headers: &HeaderMap, uri: &Uri) -> ApiResult<()> {
    const FIRST_LINE: usize = "  HTTP/1.1\r\n".len();
    const HEADER: usize = ": \r\n".len();
    let uri_len = uri.authority().map_or(0, |authority| "http://".len() + authority.as_str().len())
        + uri.path_and_query().map_or(0, |path| path.as_str().len());
    let first = method.as_str().len() + uri_len + FIRST_LINE;
    let others = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + HEADER);
    let size_bytes = first + others.sum::<usize>() + "\r\n".len();
    if size_bytes > MAX_HEAD_BYTES { Err(ApiError::head_too_large()) } else { Ok(()) }
}

/// A page of somebody else can make a browser resolve a name of theirs to this machine. What the browser then sends
/// carries that name.
fn check_host(app: &App, headers: &HeaderMap, uri: &Uri) -> ApiResult<()> {
    let refused = |name: &str| {
        let message = format!("the host {name:?} is not one of this server's; --allow-host adds names");
        Err(ApiError::new(StatusCode::FORBIDDEN, "host_not_allowed", message))
    };
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        let message = "expected one `Host` header";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "host_missing", message));
    };
    let host = host.to_str().unwrap_or_default();
    match host.parse::<Authority>() {
        Ok(authority) if is_own(app, &authority) => {}
        _ => return refused(host),
    }
    match uri.authority() {
        Some(authority) if !is_own(app, authority) => refused(authority.as_str()),
        _ => Ok(()),
    }
}

fn is_own(app: &App, authority: &Authority) -> bool {
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = host.parse::<IpAddr>() {
        // An address is no name that anybody could have pointed here.
        let own = app.address.ip();
        return address.is_loopback() || address == own || own.is_unspecified();
    }
    let is = |name: &str| host.trim_end_matches('.').eq_ignore_ascii_case(name);
    is("localhost") || app.options.allowed_hosts.iter().any(|name| is(name))
}

/// Browsers say from which page a request comes. The only one that may drive this server is one that it would serve itself.
fn check_origin(headers: &HeaderMap) -> ApiResult<()> {
    let host = headers.get(header::HOST).map_or(&b""[..], |host| host.as_bytes());
    let is_own = |origin: &HeaderValue| {
        let origin = origin.as_bytes();
        let name = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        name.is_some_and(|name| name.eq_ignore_ascii_case(host))
    };
    let is_foreign = headers.get_all(header::ORIGIN).iter().any(|origin| !is_own(origin));
    let is_foreign_site = headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
    if is_foreign || is_foreign_site {
        let message = "requests from web pages of other origins are refused";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "origin_not_allowed", message));
    }
    Ok(())
}

fn check_key(app: &App, headers: &HeaderMap) -> ApiResult<()> {
    let Some(keys) = &app.options.keys else { return Ok(()) };
    let given = headers.get(header::AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
    let key = match given.split_at_checked(7) {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case(b"bearer ") => key.trim_ascii(),
        _ => b"",
    };
    if keys.accept(key) {
        return Ok(());
    }
    let message = "expected a key of this server in the header `Authorization: Bearer KEY`";
    Err(ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message))
}
