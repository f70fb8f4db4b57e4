//! As much of HTTP/1.1 (RFC 9112) as `GET /metrics` takes, and no more: one request a connection, no
//! body, a bounded head. No I/O.

/// The longest head of a request that is read.
pub(crate) const MAX_HEAD: usize = 8 << 10;

/// What the bytes of a connection amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The head is not whole yet.
    More,
    /// `GET /metrics`.
    Metrics,
    /// Something else.
    Refused(Refusal),
}

/// Why there are no metrics for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is no HTTP/1.1, or has a body.
    Malformed,
    NotFound,
    /// Another method than GET.
    Method,
    /// The head is too long.
    TooLong,
}

impl Refusal {
    fn line(self) -> &'static str {
        match self {
            Self::Malformed => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::Method => "405 Method Not Allowed",
            Self::TooLong => "431 Request Header Fields Too Large",
        }
    }
}

/// Reads the head of a request.
pub(crate) fn read(bytes: &[u8]) -> Request {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return match bytes.len() >= MAX_HEAD {
            true => Request::Refused(Refusal::TooLong),
            false => Request::More,
        };
    };
    if end + 4 > MAX_HEAD {
        return Request::Refused(Refusal::TooLong);
    }
    match check(&bytes[..end]) {
        Ok(()) => Request::Metrics,
        Err(refusal) => Request::Refused(refusal),
    }
}

fn check(head: &[u8]) -> Result<(), Refusal> {
    let head = std::str::from_utf8(head).map_err(|_| Refusal::Malformed)?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (method, target, version, words.next())
    else {
        return Err(Refusal::Malformed);
    };
    if !is_token(method) || !target.starts_with('/') || target.contains(char::is_control) {
        return Err(Refusal::Malformed);
    }
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(Refusal::Malformed)?;
        let has_body = (name.eq_ignore_ascii_case("content-length") && value.trim() != "0")
            || name.eq_ignore_ascii_case("transfer-encoding");
        if !is_token(name) || value.contains(|c: char| c.is_control() && c != '\t') || has_body {
            return Err(Refusal::Malformed);
        }
    }
    match (target, method) {
        ("/metrics", "GET") => Ok(()),
        ("/metrics", _) => Err(Refusal::Method),
        _ => Err(Refusal::NotFound),
    }
}

/// A token of RFC 9110, section 5.6.2.
fn is_token(word: &str) -> bool {
    let is = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !word.is_empty() && word.bytes().all(is)
}

/// The answer that has the metrics.
pub(crate) fn answer(text: &str) -> Vec<u8> {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    response("200 OK", kind, "", text)
}

/// The answer to everything else.
pub(crate) fn refuse(refusal: Refusal) -> Vec<u8> {
    let line = refusal.line();
    let allow = if refusal == Refusal::Method { "Allow: GET\r\n" } else { "" };
    let text = format!("{line}; this address answers GET /metrics\n");
    response(line, "text/plain; charset=utf-8", allow, &text)
}

fn response(line: &str, kind: &str, more: &str, text: &str) -> Vec<u8> {
    let length = text.len();
    format!(
        "HTTP/1.1 {line}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{more}\
         Connection: close\r\n\r\n{text}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(head: &str) -> Refusal {
        match read(format!("{head}\r\n\r\n").as_bytes()) {
            Request::Refused(refusal) => refusal,
            other => panic!("{head:?}: {other:?}"),
        }
    }

    #[test]
    fn metrics_are_for_a_plain_get() {
        let good = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9464\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(read(good.as_bytes()), Request::Metrics);
        assert_eq!(read(b"GET /metrics HTTP/1.0\r\n\r\n"), Request::Metrics);
        for cut in 0..good.len() {
            assert_eq!(read(&good.as_bytes()[..cut]), Request::More, "{cut}");
        }
        assert_eq!(refused("GET / HTTP/1.1"), Refusal::NotFound);
        assert_eq!(refused("GET /metrics?a=b HTTP/1.1"), Refusal::NotFound);
        assert_eq!(refused("GET /../metrics HTTP/1.1"), Refusal::NotFound);
        for method in ["POST", "HEAD", "get", "DELETE"] {
            assert_eq!(refused(&format!("{method} /metrics HTTP/1.1")), Refusal::Method);
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for head in [
            "",
            "GET",
            "GET /metrics",
            "GET /metrics HTTP/2.0",
            "GET  /metrics HTTP/1.1",
            "GET /metrics HTTP/1.1 more",
            "G(T /metrics HTTP/1.1",
            "GET metrics HTTP/1.1",
            "PRI * HTTP/2.0",
            "GET /metrics HTTP/1.1\r\nno colon",
            "GET /metrics HTTP/1.1\r\nname : space",
            "GET /metrics HTTP/1.1\r\n folded: header",
            "GET /metrics HTTP/1.1\r\nname: a\rb",
            "GET /metrics HTTP/1.1\r\nname: a\nb: c",
            "GET /metrics HTTP/1.1\r\nContent-Length: 5",
            "GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked",
            "\u{16}\u{3}\u{1}",
        ] {
            assert_eq!(refused(head), Refusal::Malformed, "{head:?}");
        }
        assert_eq!(read(b"\xff\xfe\r\n\r\n"), Request::Refused(Refusal::Malformed));
    }

    #[test]
    fn a_head_is_bounded() {
        let head = |n: usize| format!("GET /metrics HTTP/1.1\r\nname: {}", "a".repeat(n));
        let fits = MAX_HEAD - head(0).len() - 4;
        assert_eq!(read(format!("{}\r\n\r\n", head(fits)).as_bytes()), Request::Metrics);
        assert_eq!(refused(&head(fits + 1)), Refusal::TooLong);
        assert_eq!(read(head(MAX_HEAD).as_bytes()), Request::Refused(Refusal::TooLong));
        assert_eq!(read(&[0; MAX_HEAD]), Request::Refused(Refusal::TooLong));
    }

    #[test]
    fn answers_say_how_long_they_are() {
        let answer = String::from_utf8(answer("a 1\n# EOF\n")).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("\r\nContent-Length: 10\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\na 1\n# EOF\n"), "{answer}");
        let refused = String::from_utf8(refuse(Refusal::Method)).unwrap();
        assert!(refused.contains("405 ") && refused.contains("\r\nAllow: GET\r\n"), "{refused}");
    }
}
