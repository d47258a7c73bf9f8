//! Base64 as MCP has it in images, audio and blobs (RFC 4648, section 4). Pure.

/// The bytes that `text` spells; `None` if it is no base64. Line ends are passed over, and padding
/// may be missing.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut held, mut bits) = (0_u32, 0);
    let mut padded = false;
    for byte in text.bytes() {
        let value = match byte {
            b'\r' | b'\n' => continue,
            b'=' => {
                padded = true;
                continue;
            }
            _ if padded => return None,
            byte => digit(byte)?,
        };
        held = (held << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from((held >> bits) & 0xff).unwrap_or(0));
        }
    }
    // A single digit is no byte, and bits that are left over must say nothing.
    (bits < 6 && held & ((1 << bits) - 1) == 0).then_some(bytes)
}

const fn digit(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_decoded() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("Zg==", b"f"),
            ("Zm8=", b"fo"),
            ("Zm9v", b"foo"),
            ("Zm9v\r\nYmFy", b"foobar"),
            ("Zm9vYg", b"foob"),
            ("+/+/", &[0xfb, 0xff, 0xbf]),
        ] {
            assert_eq!(decode(text).as_deref(), Some(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in ["Z", "Zg=a", "Z-==", "Zm9vY", "Zh==", "ä"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
